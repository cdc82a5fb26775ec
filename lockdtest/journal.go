package lockdtest

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"text/tabwriter"
)

// volume says whether lines are kept.
type volume int

const (
	quiet volume = iota
	loud
)

// journal keeps what happens, a line for each step.
type journal struct {
	volume volume
	muted  bool // the process is being killed: what its goroutines still do has no line
	lines  []line
}

// line is one step of a schedule.
type line struct {
	step      int
	time      string
	goroutine string
	what      string
	effects   []string
	idle      bool // no goroutine of the body's went on
}

// begin begins the line of a step.
func (j *journal) begin(w *World, goroutine, what string) {
	if j.volume == loud && !j.muted {
		j.lines = append(j.lines, line{step: w.step, time: w.at(w.now), goroutine: goroutine,
			what: what, idle: w.idle > 0})
	}
}

// note adds an effect to the line of the step.
func (j *journal) note(effect string) {
	if n := len(j.lines); n > 0 && !j.muted {
		j.lines[n-1].effects = append(j.lines[n-1].effects, effect)
	}
}

// timeline returns the lines as a table.
func (o *outcome) timeline() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	for i := 0; i < len(o.lines); i++ {
		l := o.lines[i]
		if n := idleFrom(o.lines[i:]); n > 2*shownIdle {
			fmt.Fprintf(table, "\t\t\t... and so on, %d steps more\n", n-shownIdle)
			i += n - shownIdle
			continue
		}
		name := l.goroutine
		if name == "" {
			name = "-"
		}
		what := l.what
		if len(l.effects) > 0 {
			what += " → " + strings.Join(l.effects, "; ")
		}
		fmt.Fprintf(table, "%4d\t%s\t%s\t%s\n", l.step, l.time, name, what)
	}
	table.Flush()
	return text.String()
}

const shownIdle = 8 // lines at the beginning and at the end of a time in which only time passes

// idleFrom returns how many lines there are, from the first one on, in which only time passes.
func idleFrom(lines []line) int {
	for i, l := range lines {
		if !l.idle {
			return i
		}
	}
	return len(lines)
}

const module = "github.com/lockd/lockd"

// call is callSite, if lines are kept.
func (j *journal) call(what string) string {
	if j.volume == quiet {
		return ""
	}
	return callSite(what)
}

// callSite describes a point in words: the method of lockd or World that is called, the line that
// calls it, and what the method is about to do.
func callSite(what string) string {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	method := ""
	for {
		frame, more := frames.Next()
		pkg, name := splitName(frame.Function)
		switch {
		case pkg == module || pkg == module+"/lockdtest" && strings.HasPrefix(name, "(*World)"):
			method = methodName(name)
		case pkg == module+"/lockdtest", strings.HasPrefix(pkg, module+"/internal/"),
			strings.HasPrefix(pkg, module+"/store"):
		case pkg == "runtime":
			return strings.TrimSpace(method + " " + what)
		default:
			site := fmt.Sprintf("%s:%d", path.Base(frame.File), frame.Line)
			if method == "" { // it is part of its caller
				return strings.TrimSpace("call at " + site + " " + what)
			}
			if what == "" || strings.HasSuffix(method, what) {
				return method + " at " + site
			}
			return method + " at " + site + " " + what
		}
		if !more {
			return what
		}
	}
}

// splitName splits the name of a function into the name of its package and the rest.
func splitName(function string) (pkg, name string) {
	folder, last := path.Split(function)
	pkg, name, _ = strings.Cut(last, ".")
	return folder + pkg, name
}

// methodName is the name of a method, without what the compiler adds.
func methodName(name string) string {
	parts := strings.Split(strings.NewReplacer("(*", "", ")", "").Replace(name), ".")
	return strings.Join(parts[:min(2, len(parts))], ".")
}
