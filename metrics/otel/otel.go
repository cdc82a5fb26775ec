// Package otel gives what a lockd database counts to OpenTelemetry. It is a module of its own, so
// that a program that needs no metrics need not have the client library.
//
// One call registers the metrics of a database with a meter:
//
//	meter := otel.Meter("github.com/lockd/lockd")
//	registration, err := lockdotel.Register(meter, db)
//
// The package has the same name as OpenTelemetry's package otel, so a program that imports both
// gives this one another name. A program with several databases gives the metrics of each database
// its own attribute:
//
//	lockdotel.Register(meter, db, attribute.String("database", "jobs"))
//
// # Instruments
//
// The instruments have the names and the meanings of the metrics of package
// github.com/lockd/lockd/metrics/prometheus, whose comment lists them, so a dashboard or an alert
// for the one fits the other. All are observable and of type float64, and are read together when a
// reader collects.
//
// # Histograms
//
// A histogram of OpenTelemetry records each duration when it happens. lockd counts durations in
// buckets when the write that ended them is durable, and a reader asks for the counts. The metrics
// API has no instrument for counts that exist already. (The SDK has one, a Producer of finished
// histograms. It would make the SDK a requirement, and has to be registered with each reader.) So
// each histogram is exported as the counters of which a Prometheus histogram consists:
//
//	NAME_bucket   how many were no longer than the attribute le says, in seconds, or "+Inf"
//	NAME_count    how many there were
//	NAME_sum      how long all of them took together, in seconds
//
// In PromQL histogram_quantile reads these buckets. An exporter to Prometheus that adds _total to
// the names of counters has to be told to leave them alone.
package otel

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/metrics/internal/figures"
)

// Register registers the instruments of the database with the meter, all with the given attributes,
// which tell several databases apart. Each collection of a reader reads the counts once, and waits
// for no commit: see DB.Stats. Collections go on after the database's Close, with what was counted
// last, until the registration is unregistered.
//
// It returns the meter's error if the meter refuses an instrument or the callback. A nil db or
// meter panics.
func Register(
	meter metric.Meter, db *lockd.DB, attributes ...attribute.KeyValue,
) (metric.Registration, error) {
	if db == nil {
		panic("lockd: nil database")
	}
	if meter == nil {
		panic("lockd: nil meter")
	}
	i := &instruments{meter: meter, attributes: slices.Clone(attributes)} // a Set sorts them
	for _, f := range figures.All() {
		i.addFigure(f)
	}
	i.addDuration()
	for _, h := range figures.Histograms() {
		i.addHistogram(h)
	}
	if err := errors.Join(i.errs...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		stats := db.Stats()
		for _, observe := range i.observers {
			observe(to, &stats)
		}
		return nil
	}, i.all...)
}

// instruments are what Register makes.
type instruments struct {
	meter      metric.Meter
	attributes []attribute.KeyValue
	all        []metric.Observable
	observers  []func(to metric.Observer, stats *lockd.Stats)
	errs       []error // of instruments that the meter refused
}

// with returns the option of an observation with the attributes, and one more if key is not empty.
func (i *instruments) with(key, value string) metric.ObserveOption {
	attributes := i.attributes[:len(i.attributes):len(i.attributes)]
	if key != "" {
		attributes = append(attributes, attribute.String(key, value))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// observe makes each collection observe the instrument with the value that read returns.
func (i *instruments) observe(
	instrument metric.Float64Observable, option metric.ObserveOption,
	read func(stats *lockd.Stats) float64,
) {
	i.observers = append(i.observers, func(to metric.Observer, stats *lockd.Stats) {
		to.ObserveFloat64(instrument, read(stats), option)
	})
}

func (i *instruments) counter(name, help string) metric.Float64Observable {
	counter, err := i.meter.Float64ObservableCounter(name, metric.WithDescription(help))
	i.all, i.errs = append(i.all, counter), append(i.errs, err)
	return counter
}

func (i *instruments) gauge(name, help string) metric.Float64Observable {
	gauge, err := i.meter.Float64ObservableGauge(name, metric.WithDescription(help))
	i.all, i.errs = append(i.all, gauge), append(i.errs, err)
	return gauge
}

func (i *instruments) addFigure(f figures.Figure) {
	of := i.gauge
	if f.Kind == figures.Counter {
		of = i.counter
	}
	instrument := of(f.Name, f.Help)
	for _, v := range f.Values {
		key := ""
		if v.Cause != "" {
			key = figures.CauseLabel
		}
		i.observe(instrument, i.with(key, v.Cause), v.Of)
	}
}

// addDuration adds how long commits took.
func (i *instruments) addDuration() {
	count := i.counter(figures.CommitDuration+"_count", "How many commits succeeded.")
	i.observe(count, i.with("", ""),
		func(s *lockd.Stats) float64 { return float64(s.Commits.Count) })
	sum := i.counter(figures.CommitDuration+"_sum", figures.CommitDurationHelp)
	i.observe(sum, i.with("", ""),
		func(s *lockd.Stats) float64 { return s.Commits.Total.Seconds() })
}

// addHistogram adds the three counters of a histogram.
func (i *instruments) addHistogram(h figures.Histogram) {
	buckets := i.counter(h.Name+"_bucket", h.Help+" Counts by the longest, in seconds.")
	var bounds []metric.ObserveOption
	for bound := range figures.Cumulative(new(lockd.Histogram)) {
		bounds = append(bounds, i.with("le", strconv.FormatFloat(bound, 'g', -1, 64)))
	}
	all := i.with("le", "+Inf")
	i.observers = append(i.observers, func(to metric.Observer, stats *lockd.Stats) {
		counted := h.Of(stats)
		next := 0
		for _, n := range figures.Cumulative(counted) {
			to.ObserveFloat64(buckets, float64(n), bounds[next])
			next++
		}
		to.ObserveFloat64(buckets, float64(counted.Count()), all)
	})
	count := i.counter(h.Name+"_count", h.Help+" Their count.")
	i.observe(count, i.with("", ""),
		func(s *lockd.Stats) float64 { return float64(h.Of(s).Count()) })
	sum := i.counter(h.Name+"_sum", h.Help+" Their sum.")
	i.observe(sum, i.with("", ""), func(s *lockd.Stats) float64 { return h.Of(s).Seconds })
}
