package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// envRun makes this test binary the program: its value says which fence to take down first.
const envRun = "LOCKD_LEADER_WITHOUT"

func TestMain(m *testing.M) {
	without, ok := os.LookupEnv(envRun)
	if !ok {
		os.Exit(m.Run())
	}
	switch without {
	case "lockd":
		putInLockd = func(db *lockd.DB, _ lockd.Sequencer, text string) (lockd.Entry, error) {
			return db.Put(primaryKey, []byte(text), nil)
		}
	case "journal":
		fenceAtJournal = func(*lockd.Guard, lockd.Sequencer) error { return nil }
	}
	main()
}

// run runs the program in an empty folder, which it has to leave empty.
func run(t *testing.T, without string) (stdout, stderr string, status int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "-ttl=300ms")
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &complaints
	cmd.Env = append(os.Environ(), envRun+"="+without)
	if _, exited := errors.AsType[*exec.ExitError](cmd.Run()); !exited && cmd.ProcessState == nil {
		t.Fatalf("%s did not run", program)
	}
	left, err := fs.ReadDir(os.DirFS(cmd.Dir), ".")
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// Ensure that the story is told to its end, and that each of its parts happens, in order.
func TestLeader(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := run(t, "nothing")
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr:\n%s", status, stderr)
	}
	rest := stdout
	for _, line := range []string{
		`opened leader-\d+.lockd\.db at index \d+`,
		`mysql-1 leads, its sequencer is \d+:1:\S+:service/mysql/leader`,
		`mysql-3 asks for the lock without waiting\n.*held by "mysql-1" .* for .*, 2 ahead of you`,
		`mysql-1 wrote service/mysql/primary = 10.0.0.9 at index \d+, and line 3 of the journal`,
		`mysql-1 renewed no more, and lost its lock .* later\n.*: session expired`,
		`mysql-3 asks again\n.*delayed for another .*, 2 ahead of you`,
		`mysql-2 leads, its sequencer is \d+:2:`,
		`mysql-1 writes to lockd, too late\n.*lock is not held: fence \d+ has passed`,
		`mysql-1 writes to the journal, too late\n.*lock is not held: fence \d+ has passed`,
		`service/mysql/primary is 10.0.0.20, .* the journal ends with 10.0.0.20`,
		`mysql-2 unlocked, and at index \d+ the lock went on to mysql-3`,
		`process \d+ leads, its sequencer is \d+:4:`,
		`this process opens the file too\n.*file is in use`,
		`process \d+ is gone \(.*\), \d+ writes after it began`,
		`service/mysql/count is \d+, and \d+ was the last that was acknowledged`,
		`service/mysql/primary is still 10.0.0.30, from index \d+`,
		`session "backup" outlived its process, and still holds \d+:1:\S+:service/mysql/backup`,
		`session "mysql-4" ended at index \d+\n.*process of the session is gone`,
		`its sequencer proves nothing now\n.*lock is not held`,
		`mysql-5 leads, its sequencer is \d+:5:`,
		`mysql-5 led .* after the restart, since the lock-delay was 300ms`,
	} {
		at := regexp.MustCompile(line).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("not there, or not in its place: %s\noutput:\n%s", line, stdout)
		}
		rest = rest[at[1]:]
	}
}

// Ensure that the story notices a late write that gets through: with one of the fences taken
// down, it ends there, and says which write it was.
func TestLeader_WithoutFence(t *testing.T) {
	for without, complaint := range map[string]string{
		"lockd":   `mysql-1 writes to lockd, too late, and it is not refused`,
		"journal": `mysql-1 writes to the journal, too late, and it is not refused`,
	} {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := run(t, without)
			if status != 1 || !strings.Contains(stderr, complaint) {
				t.Errorf("status %d, stdout:\n%s\nstderr:\n%s", status, stdout, stderr)
			}
		})
	}
}
