-- A replica that has closed its session in order, and could not put back all of its runs: whoever does it later finds no death.
alter table pgexec.replicas add column closed boolean not null default false;
