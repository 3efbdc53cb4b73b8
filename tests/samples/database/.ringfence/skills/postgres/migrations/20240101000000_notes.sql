create table notes (
  id bigint generated always as identity primary key,
  owner uuid not null,
  body text not null default ''
);

alter table notes enable row level security;
