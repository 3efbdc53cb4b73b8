export const meta = { name: 'triage', steps: ['read', 'label'] };

export default async function ({ agent, parallel }) {
  const issues = await agent('list the open issues without a label');
  return parallel(issues.map(issue => () => agent(`label ${issue}`)));
}
