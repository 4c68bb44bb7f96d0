// Package elsewhere tells what is amiss beyond this node: that no controller leads, that
// no tunnel leads to other nodes. It asks when somebody waits in vain, with echoes and of
// the API server, and keeps nothing. It must not know what follows from that.
package elsewhere

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Login gives the credentials of an API server that are in force.
type Login func() (login.Login, error)

// limit bounds a question to the API server: somebody waits for the answer.
const limit = 3 * time.Second

// about reads an object of the API server; one that is not there is not read.
func (from Login) about(ctx context.Context, path, name string, read func(object []byte)) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	l, err := from()
	if err != nil {
		return err
	}
	return login.Follow(ctx, l, path, name, func(_ string, object []byte) (bool, error) {
		read(object)
		return true, nil
	})
}

// Leaderless says that no controller answers, and since when; "" while one leads, or where
// nothing tells, as in a cluster of Kube-OVN's controller. namespace is Fairlead's own.
func Leaderless(ctx context.Context, from Login, namespace string) (said string, err error) {
	path := "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	if err := from.about(ctx, path, fairlead.ControllerLease, func(lease []byte) { said = leaderless(lease, time.Now()) }); err != nil {
		return "", fmt.Errorf("read Lease %s/%s: %w", namespace, fairlead.ControllerLease, err)
	}
	return said, nil
}

// leaderless is since when nobody leads by a Lease that nobody holds, or that its holder
// has not renewed in time by this node's clock; "" where somebody does.
func leaderless(lease []byte, now time.Time) string {
	var o struct {
		Spec struct {
			Holder  string    `json:"holderIdentity"`
			Seconds int       `json:"leaseDurationSeconds"`
			Renewed time.Time `json:"renewTime"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(lease, &o); err != nil || o.Spec.Renewed.IsZero() {
		return ""
	}
	if o.Spec.Holder != "" && now.Sub(o.Spec.Renewed) <= time.Duration(o.Spec.Seconds)*time.Second {
		return ""
	}
	return fmt.Sprintf("no controller answers since %s: fairlead-controller runs nowhere, or reaches OVN's northbound database from nowhere",
		o.Spec.Renewed.Local().Format(time.RFC3339))
}
