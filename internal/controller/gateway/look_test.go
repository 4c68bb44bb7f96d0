package gateway_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
)

// TestUntoldIsToldLater: an event that could not be recorded is told with the next plan, once, and
// not when there is a newer one of its kind.
func TestUntoldIsToldLater(t *testing.T) {
	t.Parallel()
	b := &objecttest.Board{Fail: errors.New("the API server is away")}
	w := object.World{Readers: object.Readers{Subnets: objecttest.Shelf[*v1.Subnet]{"/s": {}}}, Outcomes: b}
	k := gateway.New()
	plan := func(message string) gateway.Plan {
		return gateway.Plan{Events: []gateway.Event{{Subnet: "s", Reason: gateway.ReasonNode, Message: message}, {Subnet: "gone", Reason: gateway.ReasonNode}}}
	}
	require.ErrorIs(t, k.Tell(t.Context(), plan("first"), w), b.Fail)
	require.ErrorIs(t, k.Tell(t.Context(), plan("second"), w), b.Fail)
	b.Fail = nil
	require.NoError(t, k.Tell(t.Context(), gateway.Plan{}, w))
	require.Len(t, b.Said, 1)
	require.Contains(t, b.Said[0], "SubnetGatewayNodeChanged second")
	require.NoError(t, k.Tell(t.Context(), gateway.Plan{}, w))
	require.Len(t, b.Said, 1)
}
