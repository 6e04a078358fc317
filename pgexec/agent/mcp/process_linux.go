package mcp

import (
	"os/exec"
	"syscall"
)

// setGroup puts a process in a group of its own. The kernel kills it when the
// thread that started it ends, which a killed replica's does.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
