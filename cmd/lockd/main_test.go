package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
	"go.uber.org/goleak"
)

// envRun makes this test binary the command.
const envRun = "LOCKD_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(envRun) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// result is the outcome of a command line.
type result struct {
	out, complaints string
	code            int
}

// command runs a command line in this process, with the input on its standard input.
func command(t *testing.T, input string, args ...string) result {
	t.Helper()
	var out, complaints bytes.Buffer
	code := run(t.Context(), append([]string{"lockd"}, args...), strings.NewReader(input), &out,
		&complaints)
	return result{out.String(), complaints.String(), code}
}

// wants fails the test unless the exit code is code and the complaints contain the text. With code
// 0 there must be no complaint.
func (r result) wants(t *testing.T, code int, complaint string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.complaints, complaint) ||
		(r.complaints == "") != (code == 0) {
		t.Errorf("exit code %d, standard error %q; want %d, %q", r.code, r.complaints, code,
			complaint)
	}
}

// Ensure that a wrong command line is refused with exit code 2, and says what is wrong.
func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args      []string
		complaint string
	}{
		{nil, "no command is given; see lockd --help"},
		{[]string{"verfy"}, `there is no command "verfy"; see lockd --help`},
		{[]string{"verfy", "--help"}, "'verfy'; see lockd --help"},
		{[]string{"verify"}, "verify: an argument is missing, of: FILE; see lockd verify --help"},
		{[]string{"verify", "a", "b"}, `verify: "b" is one argument too many`},
		{[]string{"verify", ""}, "verify: an argument is empty, of: FILE; see lockd verify --help"},
		{[]string{"compact", ""}, "compact: an argument is empty, of: FILE"},
		{[]string{"backup", "", "to"}, "backup: an argument is empty, of: FILE [TO]"},
		{[]string{"backup", "file", ""}, "backup: an argument is empty, of: FILE [TO]"},
		{[]string{"recover", "file", ""}, "recover: an argument is empty, of: FILE TO"},
		{[]string{"restore", "", "from"}, "restore: an argument is empty, of: FILE [FROM]"},
		{[]string{"restore", "file", ""}, "restore: an argument is empty, of: FILE [FROM]"},
		{[]string{"kv", "import", ""}, "kv import: an argument is empty, of: [FILE]"},
		{[]string{"restore", "--min-index", "x", "a"},
			`--min-index "x" is not a whole number from 0 to 18446744073709551615; see lockd rest`},
		{[]string{"restore", "--min-index", "4611686018427387905", "a"},
			"--min-index 4611686018427387905 is more than 4611686018427387904"},
		{[]string{"verify", "--wait", "-1s", "a"}, "--wait -1s is below 0; see lockd verify"},
		{[]string{"verify", "--wait", "1", "a"}, `--wait "1" is not a time with its unit, such as`},
		{[]string{"compact", "--fast", "a"}, "fast; see lockd compact --help"},
		{[]string{"kv"}, "no command is given; see lockd kv --help"},
		{[]string{"kv", "help"}, `there is no command "help"; see lockd kv --help`},
		{[]string{"kv", "put", "k"}, "kv put: an argument is missing, of: KEY VALUE"},
		{[]string{"kv", "put", "--cas", "-1", "k", "v"}, `--cas "-1" is not a whole number`},
		{[]string{"kv", "put", "--cas", "x", "k", "v"}, `--cas "x" is not a whole number`},
		{[]string{"kv", "put", "--cas"}, "needs an argument: --cas"},
		{[]string{"kv", "list", "--json=maybe"}, `--json "maybe" is neither true nor false`},
		{[]string{"kv", "get", ""}, "kv get: KEY is empty; see lockd kv get --help"},
		{[]string{"kv", "put", "", "1"}, "kv put: KEY is empty; see lockd kv put --help"},
		{[]string{"kv", "delete", ""}, "kv delete: KEY is empty; see lockd kv delete --help"},
		{[]string{"serve", "--memory", "--node-id", "xx"}, `--node-id "xx" is not a UUID`},
		{[]string{"serve", "--memory", "--node", strings.Repeat("n", 16<<10+1)},
			"--node has 16385 bytes, more than 16384"},
		{[]string{"serve", "--memory", "--node", "n\xff"}, `--node "n\xff" is not UTF-8`},
		{[]string{"kv", "delete", "--recurse", "--cas", "1", "k"}, "both --recurse and --cas"},
		{[]string{"session", "list", "all"}, `list: "all" is one argument too many: it takes none`},
		{[]string{"kv", "get", "--http-addr", "ftp://h", "k"}, "--http-addr: address"},
		{[]string{"kv", "get", "--token", "a", "--token-file", "b", "k"}, "both --token and"},
	} {
		t.Run(fmt.Sprintf("%.50q", test.args), func(t *testing.T) {
			r := command(t, "", test.args...)
			r.wants(t, exitUsage, test.complaint)
			if r.out != "" {
				t.Errorf("standard output: %q", r.out)
			}
		})
	}
}

// Ensure that an option with an empty text, as from a variable that is not set, does not count as
// left out: that would make a server without a token, or without TLS.
func TestUsage_EmptyText(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "the token")
	for _, test := range []struct {
		flag string
		args []string
	}{
		{"--token", []string{"serve", "--memory", "--http", nowhere, "--token", ""}},
		{"--token", []string{"serve", "--memory", "--http", nowhere, "--token="}},
		{"--token-file", []string{"serve", "--memory", "--http", nowhere, "--token-file", ""}},
		{"--tls-cert", []string{"serve", "--memory", "--tls-cert", "", "--tls-key", ""}},
		{"--http", []string{"serve", "--memory", "--http", "", "--token", "t"}},
		{"--token", []string{"kv", "get", "--token", "", "k"}},
		{"--token-file", []string{"kv", "list", "--token-file", ""}},
		{"--http-addr", []string{"watch", "--http-addr", "", "k"}},
		{"--ca-file", []string{"session", "list", "--ca-file", ""}},
	} {
		t.Run(fmt.Sprintf("%q", test.args), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // should it serve, it ends at once
			var out, complaints bytes.Buffer
			code := run(ctx, append([]string{"lockd"}, test.args...), strings.NewReader(""),
				&out, &complaints)
			r := result{out.String(), complaints.String(), code}
			r.wants(t, exitUsage, test.flag+" is empty: give it a value, or leave it out")
		})
	}
}

// Ensure that every command has a help text, and prints it on standard output.
func TestHelp(t *testing.T) {
	root := command(t, "", "--help")
	root.wants(t, 0, "")
	asked := 0
	var ask func(path []string, cmd *cli.Command)
	ask = func(path []string, cmd *cli.Command) {
		for _, sub := range cmd.Commands {
			asked++
			name := append(slices.Clone(path), sub.Name)
			r := command(t, "", append(name, "--help")...)
			r.wants(t, 0, "")
			if !strings.Contains(r.out, "lockd "+strings.Join(name, " ")) || sub.Usage == "" ||
				len(sub.Commands) == 0 && (sub.ArgsUsage == "" || sub.Action == nil) {
				t.Errorf("%s --help: %s", name, r.out)
			}
			for _, f := range sub.Flags {
				if f, ok := f.(cli.DocGenerationFlag); !ok || f.GetUsage() == "" {
					t.Errorf("%s: flag %v has no explanation", name, f)
				}
			}
			ask(name, sub)
		}
	}
	ask(nil, newRoot())
	if asked < 10 {
		t.Errorf("%d commands", asked)
	}
}

// Ensure that the help can be asked for behind the arguments too: it comes to mind late.
func TestHelp_BehindArguments(t *testing.T) {
	for name, operands := range map[string]string{
		"kv put": "k v", "verify": "file", "serve": "x", "watch": "prefix",
	} {
		want := command(t, "", strings.Fields(name+" --help")...).out
		r := command(t, "", strings.Fields(name+" "+operands+" --help")...)
		if r.wants(t, 0, ""); r.out != want {
			t.Errorf("%s %s --help: %s", name, operands, r.out)
		}
	}
}

// Ensure that the help and the package comment list the same exit codes in the same words, and that
// the exit code of every error is listed.
func TestHelp_ExitCodes(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^(?://\t| {3})(\d+(?:\+N)?) +(\S.*)$`)
	inComment := line.FindAllStringSubmatch(string(source), -1)
	inHelp := line.FindAllStringSubmatch(exitCodes+"\n"+lockCodes, -1)
	if len(inComment) != len(inHelp) || len(inHelp) < 10 {
		t.Fatalf("%d in the comment, %d in the help", len(inComment), len(inHelp))
	}
	listed := make(map[string]bool)
	for i, match := range inHelp {
		if match[1] != inComment[i][1] || match[2] != inComment[i][2] {
			t.Errorf("help: %s %s, comment: %s %s", match[1], match[2], inComment[i][1],
				inComment[i][2])
		}
		listed[match[1]] = true
	}
	for _, c := range codes {
		if !listed[strconv.Itoa(c.code)] {
			t.Errorf("%v ends with exit code %d, which is not listed", c.err, c.code)
		}
	}
	for _, code := range []int{exitLost, exitNotAcquired, exitLockFailed, exitNotStarted,
		exitNoCommand} {
		if !listed[strconv.Itoa(code)] {
			t.Errorf("exit code %d is not listed", code)
		}
	}
}
