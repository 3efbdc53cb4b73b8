const key = Deno.env.get('FEEDS_KEY') ?? '';
if (!key) Deno.exit(1);
console.error(`feeds: a key of ${key.length} characters`);
