package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Ensure that every group measures what its target asks for, as far as that is possible here. The
// figures do not matter: the runs are too short.
func TestGroups_MeasureTheirTargets(t *testing.T) {
	for _, g := range groups {
		t.Run(g.target, func(t *testing.T) {
			b, err := newBench(tiny, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := b.measure(g); err != nil {
				t.Fatal(err)
			}
			asked := 0
			for _, row := range b.report.Rows {
				if row.Target != g.target {
					t.Errorf("a row of %s: %s", row.Target, row.What)
				}
				if row.Missing == "" && (len(row.Figure) == 0 || math.IsNaN(row.Figure.Median())) {
					t.Errorf("%s has no figure: %v", row.What, row.Figure)
				}
				if row.Missing == "" && row.Bound.Asked() {
					asked++
				}
			}
			if asked == 0 {
				t.Error("nothing is asked")
			}
			if left, _ := os.ReadDir(b.folder); len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}

// Ensure that each target is there, exactly once.
func TestGroups_HaveEveryTarget(t *testing.T) {
	var got, want []string
	for _, g := range groups {
		got = append(got, g.target)
	}
	for i := range 16 {
		want = append(want, fmt.Sprintf("P%d", i+1))
	}
	want = append(want, "busy")
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestChoose(t *testing.T) {
	chosen, err := choose("BUSY,p1")
	if err != nil || len(chosen) != 2 || chosen[0].target != "P1" {
		t.Errorf("got %v, %v, want P1 and busy in their order", chosen, err)
	}
	if all, err := choose(""); err != nil || len(all) != len(groups) {
		t.Errorf("an empty list: got %d groups, %v", len(all), err)
	}
	if _, err := choose("P1,P99"); err == nil || !strings.Contains(err.Error(), "P99") {
		t.Errorf("an unknown target: got %v", err)
	}
}

func TestRun_RefusesWhatItDoesNotKnow(t *testing.T) {
	var out bytes.Buffer
	for _, args := range [][]string{
		{"-only", "P99"}, {"-fast"}, {"-dir", filepath.Join(t.TempDir(), "missing")},
	} {
		if err := run(args, &out, &out); err == nil || err == errMissed {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

// Ensure that commits are counted as they are made.
func TestOurs_CountsCommits(t *testing.T) {
	db, err := openOurs(filepath.Join(t.TempDir(), "lockd.db"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range 5 {
		before := db.commits()
		for n := range i {
			if _, err := db.Put("k", fmt.Append(nil, i, n), nil); err != nil {
				t.Fatal(err)
			}
		}
		if after := db.commits(); after-before != uint64(i) {
			t.Errorf("%d writes: %d commits", i, after-before)
		}
	}
}

func TestReadRows_FindsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	if err := makeFile(path, orderedKeys(10), []byte("a value to be found")); err != nil {
		t.Fatal(err)
	}
	if rows, _, err := readRows(path); err != nil || rows < 10 {
		t.Fatalf("a sound file: %d rows, %v", rows, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(content, []byte("a value to be found"))
	content[at] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readRows(path); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("a damaged file: got %v", err)
	}
}

func TestKeys(t *testing.T) {
	random, ordered := keysOf(1000), orderedKeys(1000)
	if slices.Equal(random, ordered) || !slices.Equal(random, keysOf(1000)) {
		t.Error("keys are not at random, or not the same twice")
	}
	slices.Sort(random)
	if !slices.Equal(random, ordered) || !slices.IsSorted(ordered) {
		t.Error("the keys at random are other ones")
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		7: "7", 999: "999", 1000: "1,000", 100_000: "100,000", 1_000_000: "1,000,000",
	} {
		if got := count(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
