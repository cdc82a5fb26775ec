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

// Ensure that an environment variable that is empty is as good as none, and that the help names it.
func TestClient_EmptyEnvironment(t *testing.T) {
	s := served(t, "--memory")
	t.Setenv("CONSUL_HTTP_ADDR", s.url)
	empty := []string{"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_HTTP_SSL",
		"CONSUL_CACERT"}
	for _, name := range empty {
		t.Setenv(name, "")
	}
	command(t, "", "kv", "put", "k", "v").wants(t, 0, "")
	help := command(t, "", "kv", "put", "--help").out
	for _, name := range append(empty, "CONSUL_HTTP_ADDR") {
		if !strings.Contains(help, "$"+name) {
			t.Errorf("no %s in %s", name, help)
		}
	}
	t.Setenv("CONSUL_HTTP_ADDR", "")
	command(t, "", "kv", "put", "--http-addr", s.url, "k", "v").wants(t, 0, "")
}

// clients returns the names of the commands that use a server.
func clients(path []string, cmd *cli.Command) (names []string) {
	for _, sub := range cmd.Commands {
		name := append(slices.Clone(path), sub.Name)
		// A backup is of a file, and by a server only if that has it open.
		if sub.Name != "backup" && slices.ContainsFunc(sub.Flags, func(f cli.Flag) bool {
			return slices.Contains(f.Names(), "http-addr")
		}) {
			names = append(names, strings.Join(name, " "))
		}
		names = append(names, clients(name, sub)...)
	}
	return names
}
