-- Checks what was deferred to the commit, now, with the rights of the role that wrote.
set constraints all immediate
