package measure_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd/bench/internal/measure"
)

func TestSeries_Median(t *testing.T) {
	for _, test := range []struct {
		series measure.Series
		want   float64
	}{
		{measure.Series{7}, 7},
		{measure.Series{9, 1, 5}, 5},
		{measure.Series{4, 1, 3, 2}, 2.5},
	} {
		before := slices.Clone(test.series)
		if got := test.series.Median(); got != test.want {
			t.Errorf("median of %v: got %v, want %v", test.series, got, test.want)
		}
		if !slices.Equal(test.series, before) {
			t.Errorf("the series became %v, from %v", test.series, before)
		}
	}
	if got := (measure.Series)(nil).Median(); !math.IsNaN(got) {
		t.Errorf("median of nothing: got %v, want NaN", got)
	}
}

func TestSeries_Percentile(t *testing.T) {
	var series measure.Series
	for i := 100; i > 0; i-- {
		series = append(series, float64(i))
	}
	for part, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := series.Percentile(part); got != want {
			t.Errorf("percentile %v: got %v, want %v", part, got, want)
		}
	}
}

func TestSeries_IsComparedRoundByRound(t *testing.T) {
	ours, theirs := measure.Series{10, 30, 40}, measure.Series{5, 10, 80}
	if got, want := ours.Over(theirs), (measure.Series{2, 3, 0.5}); !slices.Equal(got, want) {
		t.Errorf("over: got %v, want %v", got, want)
	}
	if got, want := ours.Minus(theirs), (measure.Series{5, 20, -40}); !slices.Equal(got, want) {
		t.Errorf("minus: got %v, want %v", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("series of different numbers of rounds were compared")
		}
	}()
	ours.Over(theirs[:2])
}

// Ensure that a target is met exactly when the median meets it and the worst round is within 1.25
// times of it.
func TestBound_Met(t *testing.T) {
	for _, test := range []struct {
		name   string
		bound  measure.Bound
		series measure.Series
		want   bool
	}{
		{"AtMost", measure.AtMost(2), measure.Series{1, 2, 2.5}, true},
		{"AtMostMedian", measure.AtMost(2), measure.Series{1, 2.1, 2.2}, false},
		{"AtMostWorst", measure.AtMost(2), measure.Series{1, 1, 2.6}, false},
		{"AtLeast", measure.AtLeast(10), measure.Series{8, 10, 90}, true},
		{"AtLeastMedian", measure.AtLeast(10), measure.Series{9, 9.9, 90}, false},
		{"AtLeastWorst", measure.AtLeast(10), measure.Series{7.9, 11, 12}, false},
		{"NoneAllowed", measure.AtMost(0), measure.Series{0, 0, 0}, true},
		{"NoneAllowedOne", measure.AtMost(0), measure.Series{0, 0, 1}, false},
		{"NoRounds", measure.AtMost(2), nil, false},
		{"NotANumber", measure.AtMost(2), measure.Series{math.NaN()}, false},
		{"NotAsked", measure.Bound{}, measure.Series{5}, true},
		{"Large", measure.Large(), measure.Series{5}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.bound.Met(test.series); got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestBound_Worst(t *testing.T) {
	series := measure.Series{3, 1, 2}
	if got := measure.AtMost(9).Worst(series); got != 3 {
		t.Errorf("at most: got %v, want the highest", got)
	}
	if got := measure.Large().Worst(series); got != 1 || measure.Large().Asked() {
		t.Errorf("of what should be large: got %v, asked for %v", got, measure.Large().Asked())
	}
	if got := measure.AtLeast(9).Worst(series); got != 1 {
		t.Errorf("at least: got %v, want the lowest", got)
	}
}

// trial returns a trial that adds its name to the order, and takes the given times.
func trial(name string, order *[]string, operations int, wall, cpu time.Duration) measure.Trial {
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		*order = append(*order, name)
		return measure.Cost{Operations: operations, Wall: wall, CPU: cpu}, nil
	}}
}

func TestInTurn_AlternatesAndLeavesOutTheWarmup(t *testing.T) {
	var order []string
	figures, err := measure.InTurn(measure.Rounds{Warmup: 1, Counted: 2},
		trial("A", &order, 10, 1000, 3000), trial("B", &order, 2, 500, 100))
	if err != nil {
		t.Fatal(err)
	}
	if want := "A B A B A B"; strings.Join(order, " ") != want {
		t.Errorf("order: got %v, want %v", order, want)
	}
	if got, want := figures[0].Wall, (measure.Series{100, 100}); !slices.Equal(got, want) {
		t.Errorf("wall of A: got %v, want %v", got, want)
	}
	if got, want := figures[0].CPU, (measure.Series{300, 300}); !slices.Equal(got, want) {
		t.Errorf("CPU of A: got %v, want %v", got, want)
	}
	if got, want := figures[1].Wall, (measure.Series{250, 250}); !slices.Equal(got, want) {
		t.Errorf("wall of B: got %v, want %v", got, want)
	}
}

func TestInTurn_AddsSlices(t *testing.T) {
	var order []string
	figures, err := measure.InTurn(measure.Rounds{Warmup: 1, Counted: 1, Slices: 2},
		trial("A", &order, 10, 1000, 3000), trial("B", &order, 2, 500, 100))
	if err != nil {
		t.Fatal(err)
	}
	if want := "A B A B A B A B"; strings.Join(order, " ") != want {
		t.Errorf("order: got %v, want %v", order, want)
	}
	if got, want := figures[1].Wall, (measure.Series{250}); !slices.Equal(got, want) {
		t.Errorf("wall of B: got %v, want %v", got, want)
	}
}

func TestInTurn_SaysWhenItCounts(t *testing.T) {
	var order []string
	count := func() { order = append(order, "count") }
	_, err := measure.InTurn(measure.Rounds{Warmup: 1, Counted: 2, Count: count},
		trial("A", &order, 1, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if want := "A count A A"; strings.Join(order, " ") != want {
		t.Errorf("order: got %v, want %v", order, want)
	}
}

func TestInTurn_EndsWithTheFirstError(t *testing.T) {
	var order []string
	broken := errors.New("broken")
	_, err := measure.InTurn(measure.Rounds{Counted: 5},
		trial("A", &order, 1, 1, 1),
		measure.Trial{Name: "B", Run: func() (measure.Cost, error) {
			return measure.Cost{}, broken
		}},
		trial("C", &order, 1, 1, 1))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "round 1: B") {
		t.Errorf("got %v, want the error of B's first round", err)
	}
	if len(order) != 1 {
		t.Errorf("ran %v after the error", order)
	}
}

func TestInTurn_RefusesARoundWithoutOperations(t *testing.T) {
	var order []string
	_, err := measure.InTurn(measure.Rounds{Counted: 1}, trial("A", &order, 0, 1, 1))
	if err == nil {
		t.Fatal("a round that measured nothing gave a figure")
	}
}

func TestLoop_CountsChunks(t *testing.T) {
	calls, next := 0, 0
	cost, err := measure.Loop(0, 10, func(first, count int) error {
		if first != next || count != 10 {
			t.Errorf("call %d: got %d operations from %d, want 10 from %d",
				calls, count, first, next)
		}
		calls++
		next += count
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls != 1 || cost.Operations != 10 || cost.Wall <= 0 {
		t.Errorf("a window of none: %d calls, %+v, want one call", calls, cost)
	}
	broken := errors.New("broken")
	_, err = measure.Loop(time.Hour, 1, func(int, int) error { return broken })
	if err != broken {
		t.Errorf("error: got %v, want op's", err)
	}
}

func TestCrowd_EndsWhenOneFails(t *testing.T) {
	broken := errors.New("broken")
	var calls [3]atomic.Int64
	_, err := measure.Crowd(time.Hour, 3, func(worker, i int) error {
		if n := calls[worker].Add(1); n != int64(i)+1 {
			t.Errorf("worker %d: call %d has the number %d", worker, n, i)
		}
		if worker == 1 && i == 4 {
			return broken
		}
		return nil
	})
	if err != broken {
		t.Fatalf("got %v, want the worker's error", err)
	}
	if n := calls[1].Load(); n != 5 {
		t.Errorf("the worker that failed made %d calls, want 5", n)
	}
}

// Ensure that each worker works at least once, so that no window measures nothing.
func TestCrowd_EachWorksOnceAtLeast(t *testing.T) {
	for range 100 {
		var calls [3]atomic.Int64
		_, err := measure.Crowd(0, len(calls), func(worker, _ int) error {
			calls[worker].Add(1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for worker := range calls {
			if calls[worker].Load() == 0 {
				t.Fatalf("worker %d did nothing", worker)
			}
		}
	}
}

func TestCrowd_CountsAllWorkers(t *testing.T) {
	var calls atomic.Int64
	cost, err := measure.Crowd(time.Millisecond, 4, func(int, int) error {
		calls.Add(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if cost.Operations != int(calls.Load()) || cost.Wall <= 0 {
		t.Errorf("%+v after %d calls", cost, calls.Load())
	}
}
