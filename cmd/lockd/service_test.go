package main

import (
	"context"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// Ensure that the unit for systemd runs a valid command line, is given the time that
// opening its file takes, and reloads by SIGHUP.
func TestUnit(t *testing.T) {
	unit := make(map[string]string)
	for line := range strings.Lines(string(read(t, "lockd.service"))) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			unit[name] = value
		}
	}
	args := strings.Fields(strings.NewReplacer(
		"${STATE_DIRECTORY}", t.TempDir(), "$LOCKD_FLAGS", "").Replace(unit["ExecStart"]))
	root := newRoot()
	served := false
	for _, cmd := range root.Commands {
		cmd.Action = func(_ context.Context, cmd *cli.Command) error {
			_, err := serviceOf(cmd)
			served = cmd.Name == "serve"
			return err
		}
	}
	if err := root.Run(t.Context(), args); err != nil || !served {
		t.Errorf("%q: %v, served %v", args, err, served)
	}
	if unit["ExecReload"] != "/bin/kill -HUP $MAINPID" || unit["Type"] != "notify" ||
		unit["TimeoutStartSec"] != "infinity" {
		t.Errorf("got %q", unit)
	}
}
