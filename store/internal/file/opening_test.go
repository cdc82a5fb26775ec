package file_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// openingRounds is how often two openers open a file at the same time.
const openingRounds = 200

// patient are options that wait for others to close the file.
var patient = store.Options{NoSync: true, Timeout: time.Minute}

// opener opens the file, and checks that no other opener has it open. It counts its visits in a
// mark: a visit that went to another file is missing in the end.
type opener struct {
	path string
	open *atomic.Int32
}

func (o *opener) visit() error {
	s := store.New()
	if err := s.Open(o.path, patient); err != nil {
		return err
	}
	n := o.open.Add(1)
	err := write(s, func() {
		visits := s.Snapshot().Mark("visits")
		s.Marks.Put("visits", schema.Mark{Name: "visits", Index: visits + 1})
	})
	if n != 1 {
		err = errors.Join(err, fmt.Errorf("%d have the file open", n))
	}
	o.open.Add(-1)
	return errors.Join(err, s.Close())
}

// visitTwice starts two goroutines that each visit the file again and again.
func (o *opener) visitTwice(t *testing.T, wg *sync.WaitGroup) {
	for range 2 {
		wg.Go(func() {
			for range openingRounds {
				if err := o.visit(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
}

// visits returns the number of visits.
func visits(t *testing.T, path string) uint64 {
	t.Helper()
	s := store.New()
	if err := s.Open(path, patient); err != nil {
		t.Fatal(err)
	}
	n := s.Snapshot().Mark("visits")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Ensure that two openers of a path without a file never have a file open at the same time, and
// that both have the same file.
func TestOpening_Creation(t *testing.T) {
	folder := t.TempDir()
	for round := range openingRounds {
		o := &opener{fmt.Sprintf("%s/%d.db", folder, round), new(atomic.Int32)}
		var wg sync.WaitGroup
		var errs [2]error
		for i := range errs {
			wg.Go(func() { errs[i] = o.visit() })
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		if n := visits(t, o.path); n != 2 {
			t.Fatalf("round %d: the file has seen %d visits of 2", round, n)
		}
	}
}

// Ensure that two openers of a path never have the file open at the same time, while a third
// goroutine replaces it by smaller files, and that no commit is lost.
func TestOpening_Compaction(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be replaced")
	}
	path := newPath(t)
	o := &opener{path, new(atomic.Int32)}
	closeFile(t, openFile(t, path, quick))
	var wg sync.WaitGroup
	o.visitTwice(t, &wg)
	wg.Go(func() {
		for range openingRounds {
			if err := store.Compact(path, patient); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	if n := visits(t, path); n != 2*openingRounds {
		t.Errorf("the file has seen %d visits of %d", n, 2*openingRounds)
	}
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("left in the folder: %q", names)
	}
}

// Ensure that two openers of a file with a log never have it open together, and that no commit is
// lost: an opener reads before it has the file's lock, while the other one writes to the log.
func TestOpening_Log(t *testing.T) {
	o := &opener{newPath(t), new(atomic.Int32)}
	closeFile(t, openFile(t, o.path, quick))
	logFile(t, o.path)
	var wg sync.WaitGroup
	o.visitTwice(t, &wg)
	wg.Wait()
	if n := visits(t, o.path); n != 2*openingRounds {
		t.Errorf("the file has seen %d visits of %d", n, 2*openingRounds)
	}
	if state := readLog(t, o.path); state.Next < openingRounds {
		t.Errorf("the log has %+v", state)
	}
}

// logFile writes to a file until it has a log.
func logFile(t *testing.T, path string) {
	t.Helper()
	s := store.New()
	if err := s.Open(path, patient); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		err := write(s, func() { s.Marks.Put("log", schema.Mark{Name: "log", Index: s.Next()}) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if state := readLog(t, path); state.Next < 2 {
		t.Fatalf("the log has %+v", state)
	}
}

// Ensure that the error about a file in use names the process that has it, if the system tells.
func TestOpening_InUseByThisProcess(t *testing.T) {
	path := newPath(t)
	f := openFile(t, path, quick)
	_, err := file.OpenFile(path, quick)
	want := fmt.Sprintf("file is in use by this process, %d:", os.Getpid())
	if runtime.GOOS != "linux" {
		want = "file is in use:"
	}
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ErrInUse with %q", err, want)
	}
	closeFile(t, f)
}

// holdPath tells the child process of TestOpening_InUseByAnother which file to open.
const holdPath = "LOCKD_TEST_HOLD_PATH"

func TestOpening_InUseByAnother(t *testing.T) {
	if path := os.Getenv(holdPath); path != "" {
		hold(t, path)
		return
	}
	path := newPath(t)
	child := exec.Command(os.Args[0], "-test.run=^TestOpening_InUseByAnother$")
	child.Env = append(os.Environ(), holdPath+"="+path)
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "open\n" {
		t.Errorf("the child says %q, %v", line, err)
	}
	_, err = file.OpenFile(path, quick)
	if !errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	} else if runtime.GOOS == "linux" {
		testHolder(t, err.Error(), child.Process.Pid, began)
	}
	if err := errors.Join(input.Close(), child.Wait()); err != nil {
		t.Error(err)
	}
	closeFile(t, openFile(t, path, store.Options{NoSync: true, Timeout: time.Minute}))
}

// hold is what the child process does: it has the file open until its input ends.
func hold(t *testing.T, path string) {
	f := openFile(t, path, quick)
	fmt.Println("open")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	closeFile(t, f)
}

func testHolder(t *testing.T, text string, pid int, began time.Time) {
	t.Helper()
	told := regexp.MustCompile(`in use by process (\d+) \(([^)]+)\), running since (\S+):`).
		FindStringSubmatch(text)
	if told == nil || told[1] != fmt.Sprint(pid) {
		t.Fatalf("got %q, want process %d", text, pid)
	}
	since, err := time.Parse(time.RFC3339, told[3])
	// The system counts from a boot time that it gives in whole seconds.
	if err != nil || since.Sub(began).Abs() > time.Minute {
		t.Errorf("it runs since %v, %v, and began at %v", told[3], err, began)
	}
}

// Ensure that an opener reads what is written while it waits for a file. It reads the rows before
// it has the file's lock, and reads them again if they are no longer the rows of the last commit.
func TestOpening_ReadsWhatWasWrittenMeanwhile(t *testing.T) {
	withAndWithoutLog(t, readMeanwhile)
}

// withAndWithoutLog runs the test with a file that has no log, and with one that has.
func withAndWithoutLog(t *testing.T, test func(t *testing.T, path string)) {
	for name, prepare := range map[string]func(t *testing.T, path string){
		"NoLog": func(*testing.T, string) {},
		"Log":   logFile,
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			closeFile(t, openFile(t, path, quick))
			prepare(t, path)
			test(t, path)
		})
	}
}

func readMeanwhile(t *testing.T, path string) {
	t.Helper()
	f := openFile(t, path, quick)
	commit(t, f, 12, mark("m", 1))
	begun, taken := 0, make(map[place]string)
	read := make(chan struct{})
	tell := sync.OnceFunc(func() { close(read) })
	reader := file.RowFuncs{
		Reset: func() {
			begun++
			clear(taken)
		},
		Row: func(table byte, key string, value []byte) error {
			taken[place{table, key}] = string(value)
			if begun == 1 {
				tell()
			}
			return nil
		},
	}
	var opened *file.File
	var err error
	var opening sync.WaitGroup
	opening.Go(func() {
		patient := store.Options{NoSync: true, Timeout: time.Minute}
		opened, err = file.ReadFile(path, patient, reader)
	})
	<-read
	commit(t, f, 13, file.Write(format.MarkRows.Table, "m", nil), mark("n", 2))
	commit(t, f, 14, mark("o", 3))
	want, _ := contents(t, f)
	closeFile(t, f)
	opening.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if begun != 2 || !maps.Equal(taken, want) {
		t.Errorf("read %d times, and has %d rows, want %d", begun, len(taken), len(want))
	}
	closeFile(t, opened)
}

// Ensure that an opener fails, and leaves the file closed, if it cannot take the rows that were
// written before it had the file's lock.
func TestOpening_G13_CannotReadWhatWasWrittenMeanwhile(t *testing.T) {
	withAndWithoutLog(t, func(t *testing.T, path string) {
		looks := 0
		reader := file.RowFuncs{
			Reset: func() {
				if looks++; looks == 1 {
					f := openFile(t, path, quick)
					commit(t, f, 13, mark("m", 1))
					closeFile(t, f)
				}
			},
			Row: func(byte, string, []byte) error {
				if looks == 1 {
					return nil
				}
				return errTest
			},
		}
		_, err := file.ReadFile(path, quick, reader)
		if !errors.Is(err, errTest) || looks != 2 {
			t.Errorf("after %d looks: got %v, want the error of the second", looks, err)
		}
		closeFile(t, openFile(t, path, quick))
	})
}

// Ensure that an opener never has a file to which the path no longer leads when it has the lock: it
// opens the file that was put there meanwhile, if it may wait, and else returns ErrInUse.
func TestOpening_G1_ReplacedMeanwhile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be replaced")
	}
	for _, timeout := range []time.Duration{0, time.Minute} {
		path, other := newPath(t), newPath(t)
		closeFile(t, openFile(t, path, quick))
		f := openFile(t, other, quick)
		commit(t, f, 12, mark("m", 1))
		closeFile(t, f)
		looks, rows := 0, 0
		reader := file.RowFuncs{
			Reset: func() {
				if looks++; looks == 1 {
					if err := os.Rename(other, path); err != nil {
						t.Error(err)
					}
				}
			},
			Row: func(byte, string, []byte) error {
				rows++
				return nil
			},
		}
		f, err := file.ReadFile(path, store.Options{NoSync: true, Timeout: timeout}, reader)
		if timeout == 0 {
			if !errors.Is(err, store.ErrInUse) || looks != 1 {
				t.Errorf("without a wait: got %v after %d looks, want ErrInUse", err, looks)
			}
			continue
		}
		if err != nil || rows != 1 {
			t.Fatalf("with a wait: got %d rows, %v, want the row of the other file", rows, err)
		}
		closeFile(t, f)
	}
}

// Ensure that a file that seems damaged, or of another format, is looked at again under its lock,
// because another process may have been writing to it; that it is then opened, or refused; and that
// there is no second look for any other reason.
func TestOpening_LooksAgainUnderTheLock(t *testing.T) {
	for _, test := range []struct {
		err          error
		fails, looks int // of all looks, how many fail; and how many there are
	}{
		{store.ErrCorrupt, 1, 3}, // the third is that of the open that then succeeds
		{store.ErrFormat, 1, 3},
		{store.ErrCorrupt, 9, 2},
		{store.ErrFormat, 9, 2},
		{fs.ErrInvalid, 9, 1},
	} {
		path := newPath(t)
		f := openFile(t, path, quick)
		commit(t, f, 12, mark("m", 1))
		closeFile(t, f)
		looks := 0
		reader := file.RowFuncs{
			Reset: func() { looks++ },
			Row: func(byte, string, []byte) error {
				if looks <= test.fails {
					return test.err
				}
				return nil
			},
		}
		f, err := file.ReadFile(path, store.Options{NoSync: true, Timeout: time.Minute}, reader)
		if looks != test.looks {
			t.Errorf("%v: %d looks, want %d", test.err, looks, test.looks)
		}
		if test.fails > 1 {
			if !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%v, once: got %v", test.err, err)
		}
		closeFile(t, f)
	}
}
