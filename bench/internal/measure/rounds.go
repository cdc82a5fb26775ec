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

// Rounds says how often trials are measured. Both are counts.
type Rounds struct {
	Warmup  int // rounds before, that do not count
	Counted int
}

// InTurn runs the trials one after the other, and again for each round, so that what the machine
// does besides befalls them alike. Before each run the heap is cleared of garbage, so that nobody
// pays for another's. It returns the figures in the order of the trials, or the first error.
func InTurn(rounds Rounds, trials ...Trial) ([]Figures, error) {
	figures := make([]Figures, len(trials))
	for round := range rounds.Warmup + rounds.Counted {
		for i, trial := range trials {
			runtime.GC()
			cost, err := trial.Run()
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", trial.Name, round+1, err)
			}
			if cost.Operations <= 0 {
				return nil, fmt.Errorf("%s, round %d: nothing was measured", trial.Name, round+1)
			}
			if round < rounds.Warmup {
				continue
			}
			each := float64(cost.Operations)
			figures[i].Wall = append(figures[i].Wall, float64(cost.Wall)/each)
			figures[i].CPU = append(figures[i].CPU, float64(cost.CPU)/each)
		}
	}
	return figures, nil
}
