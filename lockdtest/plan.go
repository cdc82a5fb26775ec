package lockdtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// plan is what a seed names: everything that a schedule does and the body does not decide.
type plan struct {
	order   uint64   // seeds the priorities of the goroutines; 0: the first to begin goes on first
	changes []change // in the order of their steps
}

// change is one deviation from the plain order: at its step, or at the first step after that at
// which it is possible.
type change struct {
	kind kind
	step int
}

// kind is what a change does.
type kind byte

const (
	setBack     kind = 's' // the next goroutine goes on after all others
	passTime    kind = 't' // the clock moves to the next deadline, even if goroutines could go on
	pause       kind = 'p' // the body's next goroutine stands still beyond its TTL and lock-delay
	loseRenewal kind = 'r' // the session that is renewed next loses its renewals, for its TTL
	failCommit  kind = 'c' // the next commit fails, after those that are already to fail
	unclear     kind = 'u' // the next commit is in the file, and is reported as failed
	die         kind = 'd' // the process dies, and a commit under way is lost
	dieAfter    kind = 'w' // the process dies, and a commit under way is durable
	dieBack     kind = 'b' // like die, and the wall clock is set back before the next one begins
)

// kinds are the kinds that a seed can name.
const kinds = "stprcudwb"

// needsFile are the kinds after which the next process opens the file.
var needsFile = []kind{unclear, die, dieAfter, dieBack}

// String returns the seed.
func (p plan) String() string {
	var seed strings.Builder
	seed.WriteString(strconv.FormatUint(p.order, 10))
	for _, c := range p.changes {
		fmt.Fprintf(&seed, ".%c%d", c.kind, c.step)
	}
	return seed.String()
}

// parsePlan returns the plan of a seed.
func parsePlan(seed string) (plan, error) {
	order, rest, more := strings.Cut(seed, ".")
	var p plan
	var err error
	if p.order, err = strconv.ParseUint(order, 10, 64); err != nil {
		return p, fmt.Errorf("%q is no seed: it begins with a number", seed)
	}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ".")
		if part == "" || !strings.ContainsRune(kinds, rune(part[0])) {
			return p, fmt.Errorf("%q is no seed: %q is no change that is known", seed, part)
		}
		step, err := strconv.ParseUint(part[1:], 10, 31)
		if err != nil || step == 0 {
			return p, fmt.Errorf("%q is no seed: %q has no step", seed, part)
		}
		c := change{kind(part[0]), int(step)}
		if n := len(p.changes); n > 0 && c.step < p.changes[n-1].step { // it would come late
			return p, fmt.Errorf("%q is no seed: %q is before the change in front of it", seed,
				part)
		}
		p.changes = append(p.changes, c)
	}
	return p, nil
}

// without returns the plan without one of its changes.
func (p plan) without(i int) plan {
	p.changes = slices.Delete(slices.Clone(p.changes), i, i+1)
	return p
}

// moved returns the plan with one of its changes at another step.
func (p plan) moved(i, step int) plan {
	p.changes = slices.Clone(p.changes)
	p.changes[i].step = step
	sortChanges(p.changes)
	return p
}

// inOrder returns the plan with another order.
func (p plan) inOrder(order uint64) plan {
	p.order = order
	return p
}

func sortChanges(changes []change) {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.step, b.step) })
}

// nearby is the bound on the steps between two changes that are drawn close together.
const nearby = 8

// drawPlan draws the plan of the schedule with that number: so many changes, the first of them
// within so many steps. In half of the plans the changes are close together, and some are repeated,
// so that a fault comes while the code handles another.
func drawPlan(number uint64, changes, steps int, kinds []kind) plan {
	rng := rand.New(rand.NewPCG(number, 0))
	p := plan{order: number}
	together := rng.IntN(2) == 0
	for i := range changes {
		c := change{setBack, 1 + rng.IntN(steps)} // half of the changes stay setBack
		if j := rng.IntN(2 * len(kinds)); j < len(kinds) {
			c.kind = kinds[j]
		}
		if i > 0 && together {
			last := p.changes[i-1]
			c.step = last.step + rng.IntN(nearby)
			if rng.IntN(2) == 0 {
				c.kind = last.kind
			}
		}
		p.changes = append(p.changes, c)
	}
	sortChanges(p.changes)
	return p
}
