package login

import (
	"log/slog"

	"k8s.io/klog/v2" //nolint:depguard // to lead client-go's own lines elsewhere
)

// LogTo sends what client-go says by itself to log; it would write lines of its
// own form to standard error. It is for the whole process.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log.With("by", "client-go")) }
