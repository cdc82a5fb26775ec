package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine describes what the figures were measured on.
func machine(folder string) []string {
	return []string{
		"lockd " + revision(),
		fmt.Sprintf("%s, %d cores, GOMAXPROCS %d", processor(), runtime.NumCPU(),
			runtime.GOMAXPROCS(0)),
		fmt.Sprintf("%s, %s/%s, GOGC %s", runtime.Version(), runtime.GOOS, runtime.GOARCH,
			gogc()),
		"files on " + disk(folder),
		"measured " + time.Now().UTC().Format("2006-01-02 15:04 UTC") + load(),
	}
}

// revision is the commit that this program was built from, where the build has noted it.
func revision() string {
	commit, changed := "of an unknown commit", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return commit
	}
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = "at " + setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			changed = ", with changes"
		}
	}
	return commit + changed
}

func gogc() string {
	if value := os.Getenv("GOGC"); value != "" {
		return value
	}
	return "100"
}

// processor returns the name that the system has for the processor, where it has one.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found &&
			strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// disk is the device and the kind of file system of the folder, as df has it.
func disk(folder string) string {
	text, err := exec.Command("df", "-PT", folder).Output()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) < 2 {
		return "an unknown file system"
	}
	fields := strings.Fields(lines[1])
	return fmt.Sprintf("%s, %s", fields[1], fields[0])
}

// load is how busy the machine was when the run began, where the system says so: figures of a
// machine that does something else are worth little.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	one, _, _ := strings.Cut(string(text), " ")
	return ", load " + one
}
