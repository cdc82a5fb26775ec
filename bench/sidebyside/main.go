// Sidebyside measures lockd beside its rivals, in one process and in turn, and says which of the
// targets it meets. It exits with 1 if one is missed, and with 2 if something fails.
//
//	go run ./sidebyside              # everything
//	go run ./sidebyside -quick       # less of everything
//	go run ./sidebyside -only P1,P2  # some targets
//	go run ./sidebyside -json        # for programs
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// groups has the measurements of all targets, in order.
var groups = []group{
	{"P1", pairInMemory},
	{"P2", reads},
	{"P3", durableAlone},
	{"P4", durableCrowd},
	{"P5", durableLargeCrowd},
	{"P6", handOffs},
	{"P7", sessions},
	{"P8", watchers},
	{"P9", openLarge},
	{"P10", longRun},
	{"P11", growth},
	{"P12", overHTTP},
	{"P13", openSmall},
	{"P14", largeUpdate},
	{"P15", latency},
	{"P16", modes},
	{"busy", inBusyProgram},
}

// group measures a target, and adds its rows to the bench's report.
type group struct {
	target string
	run    func(b *bench) error
}

var errMissed = errors.New("targets were missed")

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the rivals log nothing either
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errMissed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "sidebyside:", err)
		os.Exit(2)
	}
}

// run returns errMissed if all was measured, and a target was missed.
func run(args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("sidebyside", flag.ContinueOnError)
	flags.SetOutput(progress)
	less := flags.Bool("quick", false, "measure less of everything")
	asJSON := flags.Bool("json", false, "write JSON in place of the table")
	only := flags.String("only", "", "measure these targets only, such as P1,P2")
	folder := flags.String("dir", "", "keep the files here, on the disk to be measured "+
		"(default: a new folder among the temporary files)")
	profiles := flags.String("profiles", "", "write a CPU profile of each target into this folder")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	how := full
	if *less {
		how = quick
	}
	b, err := newBench(how, *folder)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.folder)
	b.report.Command = strings.Join(append([]string{"go run ./sidebyside"}, args...), " ")
	start := time.Now()
	for _, g := range chosen {
		began := time.Now()
		if err := profiled(*profiles, g, b.measure); err != nil {
			return fmt.Errorf("%s: %w", g.target, err)
		}
		fmt.Fprintf(progress, "%s: %.1f s\n", g.target, time.Since(began).Seconds())
	}
	b.note("the run took %.0f s", time.Since(start).Seconds())
	write := b.report.WriteTable
	if *asJSON {
		write = b.report.WriteJSON
	}
	if err := write(out); err != nil {
		return err
	}
	if len(b.report.Missed()) > 0 {
		return errMissed
	}
	return nil
}

// choose returns the groups of the targets that are listed, and all for an empty list.
func choose(list string) ([]group, error) {
	if list == "" {
		return groups, nil
	}
	wanted := strings.Split(list, ",")
	var chosen []group
	for _, g := range groups {
		before := len(wanted)
		wanted = slices.DeleteFunc(wanted, func(target string) bool {
			return strings.EqualFold(g.target, target)
		})
		if len(wanted) < before {
			chosen = append(chosen, g)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("-only: there is no target %s", strings.Join(wanted, ", "))
	}
	return chosen, nil
}

// profiled measures the group, and writes a profile if a folder is named for it.
func profiled(folder string, g group, measure func(group) error) (err error) {
	if folder == "" {
		return measure(g)
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, g.target+".prof"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return measure(g)
}
