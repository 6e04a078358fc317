// Command bindir prints where PostgreSQL's server programs are installed, or
// fails with what to install: for the Makefile, before it runs the tests.
package main

import (
	"fmt"
	"os"

	"github.com/pgexec/runtime/internal/pgserver"
)

func main() {
	dir, err := pgserver.FindBinDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
