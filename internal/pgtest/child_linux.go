package pgtest

import "syscall"

// childAttr has the kernel end a child whose parent is gone, even a stopped one.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
