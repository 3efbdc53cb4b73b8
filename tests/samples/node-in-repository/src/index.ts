type Note = { at: string; text: string };

const notes: Note[] = [];
export function add(text: string): void {
  notes.push({ at: new Date().toISOString(), text });
}
