package main

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

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

// result is what a command line came to.
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

// wants fails the test unless the exit code is that, and the complaint has the text in it; for
// code 0 there has to be none.
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
		{nil, "no command is given"},
		{[]string{"verfy"}, `there is no command "verfy"`},
		{[]string{"verify"}, "verify: an argument is missing, of: FILE"},
		{[]string{"verify", "a", "b"}, `verify: "b" is one argument too many`},
		{[]string{"restore", "--min-index", "x", "a"}, "min-index"},
		{[]string{"compact", "--fast", "a"}, "fast"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			r := command(t, "", test.args...)
			r.wants(t, exitUsage, test.complaint)
			if r.out != "" {
				t.Errorf("standard output: %q", r.out)
			}
		})
	}
}

// Ensure that every command can be asked what it does, and that no flag has no explanation.
func TestHelp(t *testing.T) {
	root := command(t, "", "--help")
	root.wants(t, 0, "")
	commands := regexp.MustCompile(`(?m)^ +([a-z]+)(?:, [a-z]+)?  +\S`)
	found := 0
	for _, match := range commands.FindAllStringSubmatch(root.out, -1) {
		if match[1] == "help" {
			continue
		}
		found++
		r := command(t, "", match[1], "--help")
		r.wants(t, 0, "")
		if !strings.Contains(r.out, "lockd "+match[1]) {
			t.Errorf("%s --help: %s", match[1], r.out)
		}
	}
	if found < 4 {
		t.Errorf("%d commands found in the help:\n%s", found, root.out)
	}
}

// Ensure that the help and the package comment list the same exit codes in the same words.
func TestHelp_ExitCodes(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^(?://\t| {3})(\d+) +(\S.*)$`)
	inComment := line.FindAllStringSubmatch(string(source), -1)
	inHelp := line.FindAllStringSubmatch(exitCodes, -1)
	if len(inComment) != len(inHelp) || len(inHelp) == 0 {
		t.Fatalf("%d in the comment, %d in the help", len(inComment), len(inHelp))
	}
	listed := make(map[int]bool)
	for i, match := range inHelp {
		if match[1] != inComment[i][1] || match[2] != inComment[i][2] {
			t.Errorf("help: %s %s, comment: %s %s", match[1], match[2], inComment[i][1],
				inComment[i][2])
		}
		code, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		listed[code] = true
	}
	for _, c := range codes {
		if !listed[c.code] {
			t.Errorf("%v ends with exit code %d, which is not listed", c.err, c.code)
		}
	}
}
