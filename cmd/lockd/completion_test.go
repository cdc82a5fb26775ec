package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Ensure that there is a script for each supported shell, and that any other shell is refused.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		r := command(t, "", "completion", shell)
		if r.wants(t, 0, ""); !strings.Contains(r.out, "--generate-shell-completion") {
			t.Errorf("%s: %s", shell, r.out)
		}
		if ours := r.out == bashCompletion; ours != (shell == "bash") {
			t.Errorf("%s: the script is this program's own for bash: %t", shell, ours)
		}
	}
	command(t, "", "completion", "tcsh").wants(t, exitUsage, `there is no command "tcsh"`)
	for _, args := range [][]string{{"--fast"}, {"zsh", "--fast"}} {
		r := command(t, "", append([]string{"completion"}, args...)...)
		r.wants(t, exitUsage, "lockd: flag provided but not defined: -fast; see lockd completion")
		if r.out != "" || strings.Count(r.complaints, "\n") != 1 {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if help := command(t, "", "--help").out; !strings.Contains(help, "completion") {
		t.Error("the help does not tell of it")
	}
	if help := command(t, "", "completion", "--help").out; !strings.Contains(help, ".bashrc") {
		t.Errorf("help: %s", help)
	}
}

// Ensure that a script that cannot be written is no mistake in the command line.
func TestCompletion_NotWritten(t *testing.T) {
	_, closed := io.Pipe()
	_ = closed.CloseWithError(io.ErrClosedPipe)
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		var complaints strings.Builder
		code := run(t.Context(), []string{"lockd", "completion", shell}, strings.NewReader(""),
			closed, &complaints)
		if code != exitFailed || complaints.String() != "lockd: io: read/write on closed pipe\n" {
			t.Errorf("%s: exit code %d, %s", shell, code, complaints.String())
		}
	}
}

// Ensure that bash completes commands and options, and the name of the command that is to run under
// a lock, and that it evaluates nothing on the line.
func TestCompletion_Bash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(program, filepath.Join(folder, "lockd")); err != nil {
		t.Fatal(err)
	}
	const script = `source <(lockd completion bash)
complete_line() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_lockd
	echo "${COMPREPLY[*]}"
}
complete_line lockd se
complete_line lockd kv de
complete_line lockd serve --tok
complete_line lockd kv '$(touch evaluated)' '>' evaluated ''
complete_line lockd lock key -- ''
only_here() { :; }
complete_line lockd lock key -- only_h
complete_line lockd lock key -- cat only_h
complete_line lockd kv put key -- only_h
`
	shell := exec.CommandContext(t.Context(), bash, "--norc", "-c", script)
	shell.Dir = folder
	shell.Env = append(os.Environ(), envRun+"=1", "PATH="+folder+":"+os.Getenv("PATH"))
	shell.Stderr = os.Stderr
	out, err := shell.Output()
	const want = "serve session\ndelete\n--token --token-file\n" +
		"get put delete list export import\n\nonly_here\n\n\n"
	if err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	if got := names(t, folder); len(got) != 1 {
		t.Errorf("in the folder: %q", got)
	}
}
