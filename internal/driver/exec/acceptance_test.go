package exec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
)

// fussy accepts configurations with "good", and counts how often it is asked.
type fussy struct {
	wired
	asked int
}

func (f *fussy) Accepts(conf json.RawMessage) error {
	f.asked++
	if strings.Contains(string(conf), "good") {
		return nil
	}
	return errors.New("no")
}

// A Plugin is asked once for each configuration, and nothing is remembered of
// one for another.
func TestVerdictsAreRemembered(t *testing.T) {
	p := &fussy{}
	d := exec.New(map[string]driver.Plugin{"p": p})
	dir := t.TempDir()
	inside := func(key string) bool {
		x := call(t, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"p","key":%q}]}`, key), 0, dir)
		return d.Inside(core.Spec{Exec: x})
	}
	for range 3 {
		require.True(t, inside("good"))
		require.False(t, inside("bad"))
	}
	require.Equal(t, 2, p.asked)
	for i := range 1000 {
		require.Equal(t, i%2 == 0, inside(fmt.Sprint([]string{"good", "bad"}[i%2], i)))
	}
	require.True(t, inside("good"))
	require.False(t, inside("bad"))
}
