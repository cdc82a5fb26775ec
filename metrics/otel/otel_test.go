package otel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	lockdotel "github.com/lockd/lockd/metrics/otel"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where the databases of the tests log
	goleak.VerifyTestMain(m)
}

// must returns the value of a call that succeeds here.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// meters returns a meter, and a reader of its measurements.
func meters(t *testing.T) (metric.Meter, *sdk.ManualReader) {
	t.Helper()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	t.Cleanup(func() { must(0, provider.Shutdown(context.Background())) })
	return provider.Meter("test"), reader
}

// collected returns what the reader collects, by name and the values of the attributes, with gauges
// and counters apart.
func collected(t *testing.T, reader *sdk.ManualReader) (gauges, counters map[string]float64) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	gauges, counters = make(map[string]float64), make(map[string]float64)
	add := func(to map[string]float64, name string, points []metricdata.DataPoint[float64]) {
		for _, p := range points {
			name := name
			for _, a := range p.Attributes.ToSlice() { // sorted by their keys
				name += fmt.Sprintf("/%s=%s", a.Key, a.Value.String())
			}
			if _, twice := to[name]; twice {
				t.Errorf("%s is collected twice", name)
			}
			to[name] = p.Value
		}
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Description == "" {
				t.Errorf("%s has no description", m.Name)
			}
			switch data := m.Data.(type) {
			case metricdata.Gauge[float64]:
				add(gauges, m.Name, data.DataPoints)
			case metricdata.Sum[float64]:
				if !data.IsMonotonic || data.Temporality != metricdata.CumulativeTemporality {
					t.Errorf("%s: got %+v, want a counter", m.Name, data)
				}
				add(counters, m.Name, data.DataPoints)
			default:
				t.Errorf("%s: got %T", m.Name, data)
			}
		}
	}
	return gauges, counters
}

// Ensure that each figure of the stats is observed under its name, by the right kind of metric.
func TestRegister_ExportsEachFigure(t *testing.T) {
	db := must(lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), nil))
	t.Cleanup(func() { db.Close() })
	meter, reader := meters(t)
	must(lockdotel.Register(meter, db))

	s := must(db.NewSession(nil))
	must(s.TryLock("held", nil))
	must(s.TryAcquire("sem", 2))
	must(0, must(s.TryLock("k", nil)).Unlock())
	must(s.TryLock("shared", &lockd.LockOptions{Mode: lockd.Shared}))
	must(s.TryLock("deleted", nil))
	must(db.Delete("deleted"))
	must(s.TryLock("forced", nil))
	forced, _ := db.Get("forced")
	must(0, db.ForceUnlock("forced", forced.Fence, "why"))
	must(0, must(db.NewSession(nil)).Close())
	must(0, db.EndSession(must(db.NewSession(nil)).ID()))

	stats := db.Stats()
	wantGauges := map[string]float64{
		"lockd_up": 1, "lockd_index": float64(stats.Index), "lockd_keys": 6,
		"lockd_sessions": 1, "lockd_locks": 2, "lockd_shares": 1, "lockd_waiters": 0,
		"lockd_watchers": 0, "lockd_commit_last_seconds": stats.Commits.Last.Seconds(),
		"lockd_commit_max_seconds": stats.Commits.Max.Seconds(),
		"lockd_file_size_bytes":    float64(stats.FileSize),
	}
	wantCounters := map[string]float64{
		"lockd_grants_total": 6, "lockd_log_records_dropped_total": 0,
		"lockd_session_ends_total/cause=closed":         1,
		"lockd_session_ends_total/cause=expired":        0,
		"lockd_session_ends_total/cause=destroyed":      1,
		"lockd_session_ends_total/cause=node_gone":      0,
		"lockd_session_ends_total/cause=check_gone":     0,
		"lockd_session_ends_total/cause=check_critical": 0,
		"lockd_session_ends_total/cause=process_gone":   0,
		"lockd_session_ends_total/cause=restored":       0,
		"lockd_lock_ends_total/cause=unlocked":          1,
		"lockd_lock_ends_total/cause=key_deleted":       1,
		"lockd_lock_ends_total/cause=forced":            1,
		"lockd_lock_ends_total/cause=held_too_long":     0,
		"lockd_commit_duration_seconds_count":           float64(stats.Commits.Count),
		"lockd_commit_duration_seconds_sum":             stats.Commits.Total.Seconds(),
		"lockd_commit_writers_total":                    float64(stats.Commits.Writers),
		"lockd_commit_failures_total":                   0,
		"lockd_waits_given_up_total":                    0,
	}
	addHistogram(wantCounters, "lockd_lock_wait_seconds", &stats.LockWaits)
	addHistogram(wantCounters, "lockd_lock_hold_seconds", &stats.LockHolds)
	addHistogram(wantCounters, "lockd_slot_wait_seconds", &stats.SlotWaits)
	addHistogram(wantCounters, "lockd_slot_hold_seconds", &stats.SlotHolds)
	gauges, counters := collected(t, reader)
	if !maps.Equal(gauges, wantGauges) {
		t.Errorf("gauges:\ngot  %v\nwant %v", gauges, wantGauges)
	}
	if !maps.Equal(counters, wantCounters) {
		t.Errorf("counters:\ngot  %v\nwant %v", counters, wantCounters)
	}
	must(0, db.Close())
	if gauges, _ := collected(t, reader); gauges["lockd_up"] != 0 || gauges["lockd_keys"] != 6 {
		t.Errorf("after Close: got %v", gauges)
	}
}

// addHistogram adds the values that are exported for a histogram.
func addHistogram(values map[string]float64, name string, h *lockd.Histogram) {
	n := 0.0
	for i, bound := range lockd.HistogramBounds() {
		n += float64(h.Buckets[i])
		values[fmt.Sprint(name, "_bucket/le=", bound.Seconds())] = n
	}
	values[name+"_bucket/le=+Inf"] = float64(h.Count())
	values[name+"_count"], values[name+"_sum"] = float64(h.Count()), h.Seconds
}

// Ensure that no field of the stats is forgotten when one is added: each moves some instrument.
func TestRegister_KnowsEveryField(t *testing.T) {
	var stats lockd.Stats
	fields := 0
	for _, of := range []any{stats, stats.Ends, stats.Commits} {
		fields += reflect.TypeOf(of).NumField()
	}
	const structs = 2 // Ends and Commits, in Stats
	db := must(lockd.New(nil))
	defer db.Close()
	meter, reader := meters(t)
	must(lockdotel.Register(meter, db))
	gauges, counters := collected(t, reader)
	figures := len(gauges)
	for name := range counters {
		if !strings.Contains(name, "_bucket") && !strings.HasSuffix(name, "_wait_seconds_sum") &&
			!strings.HasSuffix(name, "_hold_seconds_sum") {
			figures++ // of a histogram, which is one field, the count alone
		}
	}
	if figures != fields-structs {
		t.Errorf("%d figures and %d fields", figures, fields-structs)
	}
}

// Ensure that the buckets are cumulative and in seconds: each counts the times that are no longer
// than its bound.
func TestRegister_Histogram(t *testing.T) {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	meter, reader := meters(t)
	must(lockdotel.Register(meter, db))
	s := must(db.NewSession(nil))
	for _, held := range []time.Duration{
		0, 2 * time.Millisecond, 3 * time.Millisecond, time.Second, 24 * time.Hour,
	} {
		lock := must(s.TryLock("k", nil))
		mock.Add(held)
		must(0, lock.Unlock())
	}
	_, got := collected(t, reader)
	for suffix, want := range map[string]float64{
		"_bucket/le=0.001": 1, "_bucket/le=0.003": 3, "_bucket/le=0.01": 3, "_bucket/le=0.3": 3,
		"_bucket/le=1": 4, "_bucket/le=3": 4, "_bucket/le=21600": 4, "_bucket/le=+Inf": 5,
		"_count": 5, "_sum": 86401.005,
	} {
		if got := got["lockd_lock_hold_seconds"+suffix]; got != want {
			t.Errorf("%s: got %v, want %v", suffix, got, want)
		}
	}
}

// Ensure that the given attributes tell the instruments of two databases apart, and that the end of
// one registration ends its instruments only.
func TestRegister_Attributes(t *testing.T) {
	meter, reader := meters(t)
	var registrations []metric.Registration
	for i, name := range []string{"jobs", "users"} {
		db := must(lockd.New(nil))
		defer db.Close()
		for range i + 1 {
			must(db.NewSession(nil))
		}
		registrations = append(registrations,
			must(lockdotel.Register(meter, db, attribute.String("database", name))))
	}
	gauges, counters := collected(t, reader)
	if gauges["lockd_sessions/database=jobs"] != 1 || gauges["lockd_sessions/database=users"] != 2 {
		t.Errorf("sessions: got %v", gauges)
	}
	for _, name := range []string{
		"lockd_session_ends_total/cause=expired/database=users",
		"lockd_lock_hold_seconds_bucket/database=jobs/le=+Inf",
	} {
		if _, ok := counters[name]; !ok {
			t.Errorf("%s is missing: %v", name, counters)
		}
	}
	must(0, registrations[0].Unregister())
	gauges, _ = collected(t, reader)
	if _, ok := gauges["lockd_sessions/database=jobs"]; ok || len(gauges) == 0 {
		t.Errorf("unregistered: got %v", gauges)
	}
}

// Ensure that the caller's attributes stay in their order, so that calls may share them.
func TestRegister_LeavesTheAttributes(t *testing.T) {
	db := must(lockd.New(nil))
	defer db.Close()
	given := []attribute.KeyValue{attribute.String("z", "1"), attribute.String("a", "2")}
	meter, _ := meters(t)
	must(lockdotel.Register(meter, db, given...))
	if given[0].Key != "z" {
		t.Errorf("got %v", given)
	}
}

// Ensure that many goroutines may collect figures while others write.
func TestRegister_Concurrently(t *testing.T) {
	db := must(lockd.New(nil))
	defer db.Close()
	meter, reader := meters(t)
	must(lockdotel.Register(meter, db))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range 100 {
				must(db.Put(fmt.Sprint(i), nil, nil))
				must(0, reader.Collect(context.Background(), new(metricdata.ResourceMetrics)))
			}
		})
	}
	wait.Wait()
	if gauges, _ := collected(t, reader); gauges["lockd_keys"] != 100 {
		t.Errorf("keys: got %v, want 100", gauges["lockd_keys"])
	}
}

// refusing is a meter that makes no counters.
type refusing struct{ noop.Meter }

var errRefused = errors.New("no counters here")

func (refusing) Float64ObservableCounter(
	string, ...metric.Float64ObservableCounterOption,
) (metric.Float64ObservableCounter, error) {
	return nil, errRefused
}

// Ensure that the error of a meter is returned, and no registration with it.
func TestRegister_ErrOfTheMeter(t *testing.T) {
	db := must(lockd.New(nil))
	defer db.Close()
	registration, err := lockdotel.Register(refusing{}, db)
	if !errors.Is(err, errRefused) || registration != nil {
		t.Errorf("got %v and %v", registration, err)
	}
}

// Ensure that a bug of the caller is refused at once, and not when a reader collects.
func TestRegister_NilPanics(t *testing.T) {
	db := must(lockd.New(nil))
	defer db.Close()
	panics := func(what string, register func()) {
		defer func() {
			if text, _ := recover().(string); !strings.HasPrefix(text, "lockd: nil "+what) {
				t.Errorf("nil %s: panic %q", what, text)
			}
		}()
		register()
	}
	panics("database", func() { _, _ = lockdotel.Register(noop.Meter{}, nil) })
	panics("meter", func() { _, _ = lockdotel.Register(nil, db) })
}

func ExampleRegister() {
	db := must(lockd.New(nil))
	defer db.Close()
	reader := sdk.NewManualReader() // a program has one that sends what it reads
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("github.com/lockd/lockd")
	registration := must(lockdotel.Register(meter, db))

	session := must(db.NewSession(nil))
	must(session.TryLock("service/mysql/leader", nil))
	var data metricdata.ResourceMetrics
	must(0, reader.Collect(context.Background(), &data))
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch m.Name {
		case "lockd_locks", "lockd_sessions", "lockd_waiters":
			fmt.Println(m.Name, m.Data.(metricdata.Gauge[float64]).DataPoints[0].Value)
		}
	}
	must(0, registration.Unregister())
	// Output:
	// lockd_sessions 1
	// lockd_locks 1
	// lockd_waiters 0
}
