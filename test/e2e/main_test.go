package e2e

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestMain ends the API server that tests share.
func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }
