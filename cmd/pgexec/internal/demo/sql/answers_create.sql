-- What the demo's application would have: its answers.
create table public.answers (topic text primary key, hits integer not null)
