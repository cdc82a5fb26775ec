package measure

import (
	"fmt"
	"runtime"
)

// Trial is one of several things that are measured in turn. Run is one round of it, and returns
// what was measured there; what it does before and after is its own affair.
type Trial struct {
	Name string
	Run  func() (Cost, error)
}

// Figures is what the rounds of one trial found, in nanoseconds for one operation.
type Figures struct {
	Wall, CPU Series
}

// Rounds says how often trials are measured.
type Rounds struct {
	Warmup  int // rounds before, that do not count
	Counted int
	Slices  int    // how often the trials take turns in one round; 0: once
	Count   func() // called before the first round that counts; may be nil
}

// InTurn runs the trials one after the other, and again for each round, so that what else the
// machine does hits them alike. Before each run that counts the heap is cleared of garbage, so that
// no trial pays for another's. It returns the figures in the order of the trials, or the first
// error.
func InTurn(rounds Rounds, trials ...Trial) ([]Figures, error) {
	figures := make([]Figures, len(trials))
	prepare := func() {}
	for round := range rounds.Warmup + rounds.Counted {
		if round == rounds.Warmup {
			prepare = runtime.GC
			if rounds.Count != nil {
				rounds.Count()
			}
		}
		costs, err := oneRound(max(1, rounds.Slices), prepare, trials)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", round+1, err)
		}
		if round < rounds.Warmup {
			continue
		}
		for i, cost := range costs {
			each := float64(cost.Operations)
			figures[i].Wall = append(figures[i].Wall, float64(cost.Wall)/each)
			figures[i].CPU = append(figures[i].CPU, float64(cost.CPU)/each)
		}
	}
	return figures, nil
}

// oneRound runs the trials in turn, slices times, and returns what each trial cost in all. It calls
// prepare before each run.
func oneRound(slices int, prepare func(), trials []Trial) ([]Cost, error) {
	costs := make([]Cost, len(trials))
	for range slices {
		for i, trial := range trials {
			prepare()
			cost, err := trial.Run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", trial.Name, err)
			}
			if cost.Operations <= 0 {
				return nil, fmt.Errorf("%s: nothing was measured", trial.Name)
			}
			costs[i].Operations += cost.Operations
			costs[i].Wall += cost.Wall
			costs[i].CPU += cost.CPU
		}
	}
	return costs, nil
}
