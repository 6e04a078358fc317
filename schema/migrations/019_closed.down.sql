alter table pgexec.replicas drop column closed;
