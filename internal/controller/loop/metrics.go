package loop

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/lib/metric"
)

// buckets, in seconds, begin at what a comparison without a write takes.
var buckets = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}

// states say what runs, and where states are read at each scrape.
type states struct {
	version, revision string

	pending   func() (n int, leads bool)
	connected func() bool // to the northbound database, replica in sync
	listed    func() bool // all objects of the API server are known
	expiry    func() float64
	blind     func() bool // whether gateways' nodes answer cannot be told
}

// metrics count and time what the controller does, for Prometheus. No label names
// an object: the number of series does not grow with the cluster.
type metrics struct {
	registry metric.Registry
	worked   *prometheus.HistogramVec
	requests *prometheus.CounterVec
	back     prometheus.Counter
	stoodIn  prometheus.Counter
}

// newMetrics makes all metrics and registers them.
func newMetrics(o states) *metrics {
	m := &metrics{
		registry: metric.New(o.version, o.revision),
		worked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_controller_reconcile_duration_seconds", Buckets: buckets,
			Help: "Time of one comparison of an object with what was made of it, by kind and result.",
		}, []string{"kind", "result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_api_requests_total",
			Help: "Requests to the Kubernetes API server, by method and HTTP status; 0: there was no answer.",
		}, []string{"method", "code"}),
		back: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_controller_api_went_back_total",
			Help: "How often the API server's database was an older one than before: it was restored from a snapshot.",
		}),
		stoodIn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_controller_stood_in_total",
			Help: "How often this controller led pods to other gateways while the one that leads did not answer.",
		}),
	}
	m.registry.MustRegister(m.worked, m.requests, m.back, m.stoodIn)
	m.registry.Flag("fairlead_controller_leading", "1 while this controller leads.", func() bool { _, leads := o.pending(); return leads })
	m.registry.Flag("fairlead_controller_listed", "1 once all objects of the API server are known.", o.listed)
	m.registry.Flag("fairlead_nb_connected", "1 while the controller is connected to the northbound database and in sync with it.", o.connected)
	m.registry.Flag("fairlead_controller_gateways_unheard", "1 while it cannot be told whether gateways' nodes answer: who is gateway follows from Nodes' conditions alone.", o.blind)
	m.registry.Gauge("fairlead_certificate_expiry_timestamp_seconds", "When the controller's certificate for OVN's databases is over; 0: it has none.", o.expiry)
	m.registry.Gauge("fairlead_controller_pending", "Objects that wait to be looked at, or are looked at now.", func() float64 {
		n, _ := o.pending()
		return float64(n)
	})
	return m
}

// done times one object's reconciliation (controller.Config.Done).
func (m *metrics) done(kind object.Kind, took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.worked.WithLabelValues(string(kind), result).Observe(took.Seconds())
}

// requested counts one request to the Kubernetes API server; code 0 means that
// there was no answer.
func (m *metrics) requested(method string, code int) {
	m.requests.WithLabelValues(method, strconv.Itoa(code)).Inc()
}

// handler serves the metrics in the text formats of Prometheus.
func (m *metrics) handler() http.Handler { return m.registry.Handler() }
