package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pgexec/runtime/schema"
)

// version is set by the linker (-X main.version=v1.2.3); else the build says it.
var version string

type versionInfo struct {
	Version     string `json:"version"`
	Commit      string `json:"commit,omitempty"`
	Go          string `json:"go"`
	Platform    string `json:"platform"`
	Schema      int    `json:"schema"`
	RiverSchema int    `json:"river_schema"`
}

func readVersion() versionInfo {
	v := versionInfo{
		Version:     version,
		Go:          runtime.Version(),
		Platform:    runtime.GOOS + "/" + runtime.GOARCH,
		Schema:      schema.Version(),
		RiverSchema: schema.RiverVersion(),
	}
	build, ok := debug.ReadBuildInfo()
	if ok && v.Version == "" && build.Main.Version != "(devel)" {
		v.Version = build.Main.Version
	}
	if v.Version == "" {
		v.Version = "dev"
	}
	if ok {
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}

func (a *app) newVersion() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program and of the schema it needs",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if out.json() {
				return printJSON(a.out, v)
			}
			_, err := fmt.Fprintf(a.out, "pgexec %s (%s, %s), needs schema %d, River's schema %d\n",
				v.Version, v.Go, v.Platform, v.Schema, v.RiverSchema)
			return err
		},
	}
	out.add(cmd)
	return cmd
}
