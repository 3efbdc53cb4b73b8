export const Quiet = async ({ client }) => ({
  event: async ({ event }) => {
    if (event.type === 'session.idle') await client.log('idle');
  },
});
