package main

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/metrics/prometheus"
)

// serverMetrics are the metrics of a server: of its database, of its process, and of the requests
// that it serves or refuses.
type serverMetrics struct {
	registry *promclient.Registry
	refused  promclient.Counter // requests with no token or a wrong one
	serving  atomic.Int64       // requests that are being served
}

func newServerMetrics(db *lockd.DB) *serverMetrics {
	m := &serverMetrics{registry: promclient.NewRegistry()}
	m.refused = promclient.NewCounter(promclient.CounterOpts{
		Name: "lockd_http_requests_refused_total",
		Help: "Requests with no token or a wrong one.",
	})
	serving := promclient.NewGaugeFunc(promclient.GaugeOpts{
		Name: "lockd_http_requests_serving",
		Help: "Requests that are being served, blocked queries among them.",
	}, func() float64 { return float64(m.serving.Load()) })
	build := promclient.NewGauge(promclient.GaugeOpts{
		Name: "lockd_build_info", Help: "Always 1; the label has the version.",
		ConstLabels: promclient.Labels{"version": version()},
	})
	build.Set(1)
	m.registry.MustRegister(prometheus.NewCollector(db), m.refused, serving, build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// beside answers requests for /metrics, in the text form of Prometheus, and hands every other
// request on. It is not an http.ServeMux, which would redirect keys that are not clean paths.
func (m *serverMetrics) beside(next http.Handler, logger *slog.Logger) http.Handler {
	metrics := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/metrics":
			next.ServeHTTP(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		default:
			metrics.ServeHTTP(w, r)
		}
	})
}

// count counts the requests that are being served.
func (m *serverMetrics) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.serving.Add(1)
		defer m.serving.Add(-1)
		next.ServeHTTP(w, r)
	})
}
