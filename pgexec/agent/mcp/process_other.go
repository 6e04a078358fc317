//go:build !linux

package mcp

import (
	"os/exec"
	"syscall"
)

// setGroup puts a process in a group of its own. When the replica is killed, the
// process sees the end of its stdin.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
