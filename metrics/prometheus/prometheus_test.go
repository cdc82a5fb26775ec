package prometheus_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/metrics/prometheus"
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

// gathered returns the values of the registry, by name and cause.
func gathered(t *testing.T, registry *client.Registry) map[string]float64 {
	t.Helper()
	values := make(map[string]float64)
	for _, family := range must(registry.Gather()) {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += "/" + label.GetValue()
			}
			switch {
			case m.GetGauge() != nil:
				values[name] = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				values[name] = m.GetCounter().GetValue()
			case m.GetHistogram() != nil:
				h := m.GetHistogram()
				values[name+"_count"] = float64(h.GetSampleCount())
				values[name+"_sum"] = h.GetSampleSum()
				for _, bucket := range h.GetBucket() {
					values[fmt.Sprint(name, "_bucket/", bucket.GetUpperBound())] =
						float64(bucket.GetCumulativeCount())
				}
			default:
				values[name+"_count"] = float64(m.GetSummary().GetSampleCount())
				values[name+"_sum"] = m.GetSummary().GetSampleSum()
			}
		}
	}
	return values
}

// addHistogram adds the values that are exported for a histogram.
func addHistogram(values map[string]float64, name string, h *lockd.Histogram) {
	values[name+"_count"], values[name+"_sum"] = float64(h.Count()), h.Seconds
	n := 0.0
	for i, bound := range lockd.HistogramBounds() {
		n += float64(h.Buckets[i])
		values[fmt.Sprint(name, "_bucket/", bound.Seconds())] = n
	}
}

// Ensure that each figure of the stats is exported under its name, with the right type.
func TestCollector_ExportsEachFigure(t *testing.T) {
	db := must(lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), nil))
	t.Cleanup(func() { db.Close() })
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewCollector(db))

	s := must(db.NewSession(nil))
	must(db.NewSession(nil))
	lock := must(s.TryLock("held", nil))
	must(0, must(s.TryLock("k", nil)).Unlock())
	must(s.TryLock("shared", &lockd.LockOptions{Mode: lockd.Shared}))
	must(s.TryLock("shared", &lockd.LockOptions{Mode: lockd.Shared}))
	must(s.TryLock("deleted", nil))
	must(db.Delete("deleted"))
	must(s.TryLock("forced", nil))
	forced, _ := db.Get("forced")
	must(0, db.ForceUnlock("forced", forced.Fence, "why"))
	must(0, must(db.NewSession(nil)).Close())
	must(0, db.EndSession(must(db.NewSession(nil)).ID()))

	stats := db.Stats()
	want := map[string]float64{
		"lockd_up": 1, "lockd_index": float64(stats.Index), "lockd_keys": 4,
		"lockd_sessions": 2, "lockd_locks": 1, "lockd_shares": 2, "lockd_waiters": 0,
		"lockd_watchers":     0,
		"lockd_grants_total": 6, "lockd_log_records_dropped_total": 0,
		"lockd_session_ends_total/closed": 1, "lockd_session_ends_total/expired": 0,
		"lockd_session_ends_total/destroyed": 1, "lockd_session_ends_total/node_gone": 0,
		"lockd_session_ends_total/check_gone": 0, "lockd_session_ends_total/check_critical": 0,
		"lockd_session_ends_total/process_gone": 0, "lockd_session_ends_total/restored": 0,
		"lockd_lock_ends_total/unlocked": 1, "lockd_lock_ends_total/key_deleted": 1,
		"lockd_lock_ends_total/forced": 1, "lockd_lock_ends_total/held_too_long": 0,
		"lockd_commit_duration_seconds_count": float64(stats.Commits.Count),
		"lockd_commit_duration_seconds_sum":   stats.Commits.Total.Seconds(),
		"lockd_commit_last_seconds":           stats.Commits.Last.Seconds(),
		"lockd_commit_max_seconds":            stats.Commits.Max.Seconds(),
		"lockd_commit_writers_total":          float64(stats.Commits.Writers),
		"lockd_commit_failures_total":         0,
		"lockd_file_size_bytes":               float64(stats.FileSize),
		"lockd_waits_given_up_total":          0,
	}
	addHistogram(want, "lockd_lock_wait_seconds", &stats.LockWaits)
	addHistogram(want, "lockd_lock_hold_seconds", &stats.LockHolds)
	addHistogram(want, "lockd_slot_wait_seconds", &stats.SlotWaits)
	addHistogram(want, "lockd_slot_hold_seconds", &stats.SlotHolds)
	if got := gathered(t, registry); !reflect.DeepEqual(got, want) {
		t.Errorf("metrics:\ngot  %v\nwant %v", got, want)
	}
	if stats.Commits.Count == 0 || stats.Commits.Total == 0 || stats.FileSize == 0 {
		t.Errorf("commits and size: got %+v", stats)
	}
	problems := must(testutil.GatherAndLint(registry))
	if len(problems) > 0 {
		t.Errorf("names: %v", problems)
	}
	must(0, lock.Unlock())
	must(0, db.Close())
	if got := gathered(t, registry); got["lockd_up"] != 0 || got["lockd_keys"] != 4 {
		t.Errorf("after Close: got %v", got)
	}
}

// Ensure that no field of the stats is forgotten when one is added: each moves some metric.
func TestCollector_KnowsEveryField(t *testing.T) {
	var stats lockd.Stats
	fields := 0
	for _, of := range []any{stats, stats.Ends, stats.Commits} {
		fields += reflect.TypeOf(of).NumField()
	}
	const structs = 2 // Ends and Commits, in Stats
	db := must(lockd.New(nil))
	defer db.Close()
	metrics := testutil.CollectAndCount(prometheus.NewCollector(db))
	if metrics+1 != fields-structs {
		t.Errorf("%d metrics, one of them of two fields, and %d fields", metrics, fields-structs)
	}
}

// Ensure that a histogram has cumulative buckets in seconds: each counts the times that are no
// longer than its bound.
func TestCollector_Histogram(t *testing.T) {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewCollector(db))
	s := must(db.NewSession(nil))
	for _, held := range []time.Duration{
		0, 2 * time.Millisecond, 3 * time.Millisecond, time.Second, 24 * time.Hour,
	} {
		lock := must(s.TryLock("k", nil))
		slot := must(s.TryAcquire("sem", 1))
		mock.Add(held)
		must(0, lock.Unlock())
		must(0, slot.Release())
	}
	got := gathered(t, registry)
	for _, name := range []string{"lockd_lock_hold_seconds", "lockd_slot_hold_seconds"} {
		for suffix, want := range map[string]float64{
			"_bucket/0.001": 1, "_bucket/0.003": 3, "_bucket/0.01": 3, "_bucket/0.3": 3,
			"_bucket/1": 4, "_bucket/3": 4, "_bucket/21600": 4, "_count": 5, "_sum": 86401.005,
		} {
			if got[name+suffix] != want {
				t.Errorf("%s: got %v, want %v", name+suffix, got[name+suffix], want)
			}
		}
	}
	if got["lockd_lock_wait_seconds_count"] != 0 {
		t.Errorf("a grant at once counts as a wait: %v", got)
	}
}

// Ensure that an expiry is counted under its cause.
func TestCollector_CountsAnExpiry(t *testing.T) {
	mock := clock.NewMock()
	db := must(lockd.New(&lockd.Options{Clock: mock}))
	defer db.Close()
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewCollector(db))
	must(db.NewSession(&lockd.SessionOptions{TTL: time.Second}))
	mock.Add(time.Second)
	must(db.Put("k", nil, nil)) // ends what is due first
	if got := gathered(t, registry)["lockd_session_ends_total/expired"]; got != 1 {
		t.Errorf("expired: got %v, want 1", got)
	}
}

// Ensure that many goroutines may gather metrics while others write.
func TestCollector_Concurrently(t *testing.T) {
	db := must(lockd.New(nil))
	defer db.Close()
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewCollector(db))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range 100 {
				must(db.Put(fmt.Sprint(i), nil, nil))
				must(registry.Gather())
			}
		})
	}
	wait.Wait()
	if got := gathered(t, registry)["lockd_keys"]; got != 100 {
		t.Errorf("keys: got %v, want 100", got)
	}
}

// Ensure that the metrics can be gathered while the function of an Update runs.
func TestCollector_WhileAnUpdateRuns(t *testing.T) {
	db := must(lockd.New(nil))
	defer db.Close()
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.NewCollector(db))
	err := db.Update(func(tx *lockd.Txn) error {
		must(tx.Put("k", nil, nil))
		if keys := gathered(t, registry)["lockd_keys"]; keys != 0 {
			t.Errorf("keys: got %v, want what is published", keys)
		}
		return nil
	})
	if keys := gathered(t, registry)["lockd_keys"]; err != nil || keys != 1 {
		t.Errorf("afterwards: got %v keys, and %v", keys, err)
	}
}

// Ensure that a nil database is refused at once, and not at the first scrape.
func TestNewCollector_NilPanics(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "lockd: ") {
			t.Errorf("panic: got %q", text)
		}
	}()
	prometheus.NewCollector(nil)
}

func ExampleCollector() {
	db := must(lockd.New(nil))
	defer db.Close()
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.NewCollector(db))

	session := must(db.NewSession(nil))
	must(session.TryLock("service/mysql/leader", nil))
	for _, family := range must(registry.Gather()) {
		switch name := family.GetName(); name {
		case "lockd_locks", "lockd_sessions", "lockd_waiters":
			fmt.Println(name, family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// lockd_locks 1
	// lockd_sessions 1
	// lockd_waiters 0
}
