// Package metrics counts and times what the agent does, for Prometheus. It is a
// core.Observer to the engine; what is a state rather than an event it asks for
// when it is scraped. It has a registry of its own and no label that names a
// pod, unless somebody asks for the counters of pods' interfaces: else the number of
// series does not grow with the number of pods.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/metric"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Operations take milliseconds when all is well and end at the deadline of
// 50 s; steps begin at what a netlink call takes. Both in seconds.
var (
	operationBuckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 50}
	stepBuckets      = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 50}
)

// Options say who the agent is and where its states are read. A nil callback
// leaves its metric out. Callbacks run at each scrape, from any goroutine.
type Options struct {
	Version  string
	Revision string

	Addresses      func() []ipam.SubnetStats
	Orphans        func() int                     // records whose DEL was answered and is not finished
	InFlight       func() int                     // operations now
	OVSDBConnected func() bool                    // connected, cache in sync
	WritesRefused  func() bool                    // by the API server, for want of rights
	Fence          func() (fenced bool, down int) // the node by itself, and interfaces off the network by it
	Unrepaired     func() int                     // gateways and ports that somebody changed and that are not put right
	Unavailable    func() bool                    // OVN's network, to this node
	Traffic        func() []Traffic
	NICs           func() []NIC                 // series for each pod
	Probes         func() (led, refused uint64) // connections to probed ports
}

// Metrics implements core.Observer.
type Metrics struct {
	registry    metric.Registry
	operations  *prometheus.HistogramVec
	steps       *prometheus.HistogramVec
	corruptions prometheus.Counter
	requests    *prometheus.CounterVec
	repairs     *prometheus.CounterVec
	refusals    *prometheus.CounterVec
}

var _ core.Observer = (*Metrics)(nil)

// NewMetrics makes all metrics and registers them.
func NewMetrics(o Options) *Metrics {
	m := &Metrics{
		registry: metric.New(o.Version, o.Revision),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fairlead_cni_operation_duration_seconds",
			Help:    "Time of a CNI operation, from the request to the answer, by driver of the main interface.",
			Buckets: operationBuckets,
		}, []string{"op", "driver", "result"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fairlead_cni_step_duration_seconds",
			Help:    "Time of one step of a CNI operation. Steps overlap: their sum is not the operation's time.",
			Buckets: stepBuckets,
		}, []string{"step"}),
		corruptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_journal_corruptions_total",
			Help: "Times that a damaged journal was moved away and replaced.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_api_requests_total",
			Help: "Requests to the Kubernetes API server, by method and HTTP status; 0: there was no answer.",
		}, []string{"method", "code"}),
	}
	m.repairs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_drift_repairs_total",
		Help: "Times that a gateway or a pod's port was not as it was made, by what it is and whether it was put right.",
	}, []string{"part", "result"})
	m.refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_refused_adds_total",
		Help: "ADDs that failed for a reason that has a name, by it (docs/fixed-addresses.md).",
	}, []string{"reason"})
	m.registry.MustRegister(m.operations, m.steps, m.corruptions, m.requests, m.repairs, m.refusals)
	m.registerStates(o)
	return m
}

// registerStates registers what is read at each scrape.
func (m *Metrics) registerStates(o Options) {
	if o.Addresses != nil {
		m.registry.MustRegister(addresses{o.Addresses})
	}
	if o.Traffic != nil {
		m.registry.MustRegister(traffic{o.Traffic})
	}
	if o.NICs != nil {
		m.registry.MustRegister(nics{o.NICs})
	}
	if o.Probes != nil {
		m.registry.MustRegister(probes{o.Probes})
	}
	if o.Orphans != nil {
		m.registry.Gauge("fairlead_orphans", "Attachments whose DEL was answered and some of whose parts are still there.",
			func() float64 { return float64(o.Orphans()) })
	}
	if o.InFlight != nil {
		m.registry.Gauge("fairlead_cni_operations_in_flight", "CNI operations that run now.",
			func() float64 { return float64(o.InFlight()) })
	}
	if o.Unrepaired != nil {
		m.registry.Gauge("fairlead_drift_unrepaired", "Gateways and pods' ports that are not as they were made and are not put right yet.",
			func() float64 { return float64(o.Unrepaired()) })
	}
	if o.Fence != nil {
		m.registry.Flag("fairlead_fenced", "1 while the node could not renew its heartbeat for so long that what its pods lease is off the network.",
			func() bool { fenced, _ := o.Fence(); return fenced })
		m.registry.Gauge("fairlead_fenced_interfaces", "Pods' interfaces that are off the network because the node had fenced itself.",
			func() float64 { _, down := o.Fence(); return float64(down) })
	}
	m.registry.Flag("fairlead_network_unavailable", "1 while this node does not reach its gateway in OVN's network of nodes.", o.Unavailable)
	m.registry.Flag("fairlead_ovsdb_connected", "1 while the agent is connected to OVSDB and in sync with it.", o.OVSDBConnected)
	m.registry.Flag("fairlead_api_writes_refused", "1 while the API server refuses what the agent writes (401, 403).", o.WritesRefused)
}

// Handler serves the metrics in the text formats of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return m.registry.Handler()
}

// StepDone implements core.Observer.
func (m *Metrics) StepDone(step string, took time.Duration) {
	m.steps.WithLabelValues(step).Observe(took.Seconds())
}

// OpDone implements core.Observer. An operation without an interface of ours
// (GC, STATUS, a refused request) has driver "none".
func (m *Metrics) OpDone(op core.Op, driver string, took time.Duration, err error) {
	if driver == "" {
		driver = "none"
	}
	result := "success"
	if err != nil {
		result = "error"
	}
	m.operations.WithLabelValues(string(op), driver, result).Observe(took.Seconds())
	if reason := core.ReasonOf(err); reason != "" && (op == core.Add || op == core.HotPlug) {
		m.refusals.WithLabelValues(reason).Inc()
	}
}

// APIRequest counts one request to the Kubernetes API server; code 0 means that
// there was no answer.
func (m *Metrics) APIRequest(method string, code int) {
	m.requests.WithLabelValues(method, strconv.Itoa(code)).Inc()
}

// DriftRepaired counts one gateway or port that was not as it was made; err is
// why it is not put right.
func (m *Metrics) DriftRepaired(part string, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.repairs.WithLabelValues(part, result).Inc()
}

// JournalCorrupt counts one quarantined journal; journal.Options.OnCorrupt
// calls it.
func (m *Metrics) JournalCorrupt() { m.corruptions.Inc() }

var addressesDesc = prometheus.NewDesc("fairlead_ipam_addresses",
	"Addresses of a subnet by state: used, free, excluded. Of a dual-stack subnet the family with fewer free ones, which a pod runs out of first.",
	[]string{"subnet", "state"}, nil)

// addresses reads the pools at each scrape.
type addresses struct{ read func() []ipam.SubnetStats }

// Describe implements prometheus.Collector.
func (addresses) Describe(out chan<- *prometheus.Desc) { out <- addressesDesc }

// Collect implements prometheus.Collector.
func (a addresses) Collect(out chan<- prometheus.Metric) {
	scarce := map[string]ipam.SubnetStats{}
	for _, s := range a.read() {
		if old, ok := scarce[s.Subnet]; !ok || s.Free < old.Free {
			scarce[s.Subnet] = s
		}
	}
	for name, s := range scarce {
		for state, n := range map[string]uint64{"used": s.Used, "free": s.Free, "excluded": s.Excluded} {
			out <- prometheus.MustNewConstMetric(addressesDesc, prometheus.GaugeValue, float64(n), name, state)
		}
	}
}
