-- Defines an agent.
insert into pgexec.agents (name, definition) values ($1, $2)
