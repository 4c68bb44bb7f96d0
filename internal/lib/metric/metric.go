// Package metric is a program's registry of Prometheus metrics, with what every
// program tells of itself: what runs, the Go runtime, the process.
package metric

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry is not shared with other programs of a process.
type Registry struct{ *prometheus.Registry }

// New makes a registry that tells version and revision of the program.
func New(version, revision string) Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fairlead_build_info", Help: "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	build.Set(1)
	r := Registry{prometheus.NewRegistry()}
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Gauge is read at each scrape, from any goroutine.
func (r Registry) Gauge(name, help string, read func() float64) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Flag is a gauge of 0 or 1; nil leaves it out.
func (r Registry) Flag(name, help string, is func() bool) {
	if is == nil {
		return
	}
	r.Gauge(name, help, func() float64 {
		if is() {
			return 1
		}
		return 0
	})
}

// Handler serves the metrics in the text formats of Prometheus.
func (r Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{})
}
