package main

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func TestPrinted(t *testing.T) {
	for text, want := range map[string]string{
		"service/mysql/leader": "service/mysql/leader",
		"ä 日本 -":               "ä 日本 -",
		"-":                    "-",
		`say "hi"`:             `say "hi"`,
		`"quoted"`:             `"\"quoted\""`,
		"a\nb":                 `"a\nb"`,
		"\x1b[2J":              `"\x1b[2J"`,
		"a\tb":                 `"a\tb"`,
		"a\u202eb":             `"a\u202eb"`, // turns the direction of the text that follows
		"a\u00a0b":             `"a\u00a0b"`,
		"a\xffb":               `"a\xffb"`,
		"a\u009bb":             `"a\u009bb"`, // begins a sequence as ESC [ does
		"a  b":                 `"a  b"`,
		" a":                   `" a"`,
		"a ":                   `"a "`,
	} {
		if got := printed(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := cell("") + cell("-") + cell("a"); got != `-"-"a` {
		t.Errorf("got %s", got)
	}
}

// Ensure that a complaint shows each byte that is not UTF-8, and leaves lines and characters as
// they are.
func TestComplain(t *testing.T) {
	var b bytes.Buffer
	complain(&b, "%s", "lockd: k\xff\ufffdä\x1b\nand more")
	if want := "lockd: k\\xff\ufffdä\\x1b\nand more\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// Ensure that no command writes a control character, or a line of its own, from a key or name to a
// terminal, and that JSON has keys and names as they are.
func TestPrint_NothingControlsTheTerminal(t *testing.T) {
	db, s := testServer(t)
	t.Setenv("CONSUL_HTTP_ADDR", s.URL)
	const nasty = "k\x1b]0;title\x07\r\nforged  line\u202e"
	session, err := db.NewSession(&lockd.SessionOptions{Name: nasty})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.TryLock(nasty, nil); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"kv", "list"}, {"kv", "get", nasty + "absent"}, {"kv", "put", "--cas", "0", nasty, ""},
		{"locks"}, {"session", "list"}, {"session", "info", session.ID().String()},
		{"session", "info", nasty}, {"session", "destroy", nasty},
		{"lock", "--try", nasty, "--", "true"}, {"lock", "-n", "1", nasty, "--", "true"},
		{"kv", nasty}, {nasty},
	} {
		r := command(t, "", args...)
		for _, text := range []string{r.out, r.complaints} {
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				if strings.ContainsFunc(line, isControl) || strings.HasPrefix(line, "forged") {
					t.Errorf("%q wrote the line %q", args, line)
				}
			}
		}
		if r.out+r.complaints == "" {
			t.Errorf("%q wrote nothing", args)
		}
	}
	if r := command(t, "", "kv", "list"); r.out != printed(nasty)+"\n" {
		t.Errorf("got %q", r.out)
	}
	var locks []lockclient.LockInfo
	(&serving{t: t}).decode(command(t, "", "locks", "--json"), &locks)
	if len(locks) == 0 || locks[0].Key != nasty || locks[0].Name != nasty {
		t.Errorf("got %+v", locks)
	}
	w := watch(t, &serving{t: t, url: s.URL})
	if line := w.line(); !strings.Contains(line, "\t"+printed(nasty)+"\t") {
		t.Errorf("watch wrote %q", line)
	}
}

// Ensure that an error of a server is printed as one line of printable characters.
func TestPrint_ErrorOfAServer(t *testing.T) {
	var out bytes.Buffer
	complain(&out, "%v", &url.Error{Op: "a\x1b[2Jb", URL: "\xff", Err: errUsage})
	if got := out.String(); got != "lockd: a\\x1b[2Jb \"\\xff\": wrong command line\n" {
		t.Errorf("got %q", got)
	}
}
