package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// nowhere is an address at which nobody serves.
const nowhere = "127.0.0.1:1"

// Ensure that every command that uses a server says, when there is none, which address it tried and
// what to do, whether a flag or the environment has named it.
func TestClient_NoServer(t *testing.T) {
	arguments := map[string][]string{
		"lock":            {"k", "true"},
		"locks":           nil,
		"watch":           {"p"},
		"kv get":          {"k"},
		"kv put":          {"k", "v"},
		"kv delete":       {"k"},
		"kv list":         nil,
		"kv export":       nil,
		"kv import":       nil,
		"session list":    nil,
		"session info":    {"0c0ffee0-0000-0000-0000-000000000000"},
		"session destroy": {"0c0ffee0-0000-0000-0000-000000000000"},
	}
	const input = `[{"key":"k","flags":0,"value":"dg=="}]` // for kv import
	for _, name := range clients(nil, newRoot()) {
		t.Run(name, func(t *testing.T) {
			own, known := arguments[name]
			if !known {
				t.Fatal("this test has no arguments for it")
			}
			code := exitFailed
			if name == "lock" {
				code = exitLockFailed
			}
			wants := func(args []string) {
				t.Helper()
				r := command(t, input, args...)
				r.wants(t, code, "no server can be reached at http://"+nowhere+": ")
				r.wants(t, code, "refused; start one with lockd serve, or name another with "+
					"--http-addr or CONSUL_HTTP_ADDR\n")
			}
			flagged := append(strings.Fields(name), "--http-addr", nowhere)
			wants(append(flagged, own...))
			t.Setenv("CONSUL_HTTP_ADDR", nowhere)
			wants(append(strings.Fields(name), own...))
		})
		delete(arguments, name)
	}
	if len(arguments) > 0 {
		t.Errorf("there are no such commands: %v", arguments)
	}
}

// clients returns the names of the commands that use a server.
func clients(path []string, cmd *cli.Command) (names []string) {
	for _, sub := range cmd.Commands {
		name := append(slices.Clone(path), sub.Name)
		if slices.ContainsFunc(sub.Flags, func(f cli.Flag) bool {
			return slices.Contains(f.Names(), "http-addr")
		}) {
			names = append(names, strings.Join(name, " "))
		}
		names = append(names, clients(name, sub)...)
	}
	return names
}
