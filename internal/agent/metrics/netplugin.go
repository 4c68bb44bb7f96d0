package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/lib/metric"
)

// NetworkPlugin counts and times what a runtime asks of its network plugin, with
// a registry of its own. The names behind the prefix are kubelet's.
type NetworkPlugin struct {
	registry   metric.Registry
	operations *prometheus.CounterVec
	errors     *prometheus.CounterVec
	duration   *prometheus.HistogramVec
}

// NewNetworkPlugin makes the metrics of a process of this version.
func NewNetworkPlugin(o Options) *NetworkPlugin {
	label := []string{"operation_type"}
	m := &NetworkPlugin{
		registry: metric.New(o.Version, o.Revision),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_network_plugin_operations_total",
			Help: "Operations of the network plugin: set_up_pod, tear_down_pod, get_pod_network_status.",
		}, label),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_network_plugin_operations_errors_total",
			Help: "Operations of the network plugin that failed.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fairlead_network_plugin_operations_duration_seconds",
			Help:    "Time of an operation of the network plugin, also of one that failed.",
			Buckets: stepBuckets,
		}, label),
	}
	m.registry.MustRegister(m.operations, m.errors, m.duration)
	return m
}

// NetworkPluginDone implements netplugin.Observer.
func (m *NetworkPlugin) NetworkPluginDone(operation string, took time.Duration, err error) {
	m.operations.WithLabelValues(operation).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}

// Handler serves the metrics in the text formats of Prometheus.
func (m *NetworkPlugin) Handler() http.Handler {
	return m.registry.Handler()
}
