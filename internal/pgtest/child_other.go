//go:build !linux

package pgtest

import "syscall"

// childAttr is nothing special where the kernel knows no signal for orphans.
func childAttr() *syscall.SysProcAttr { return nil }
