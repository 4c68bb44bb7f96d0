package chassis

import (
	"errors"
	"fmt"
	"regexp/syntax"

	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Choice says by which interface the node's tunnels leave, and what for is from the node
// itself.
type Choice struct {
	// Iface chooses it (Find); Tunnel does so on the Node (annotation AnnTunnel), and comes
	// first unless it gives "".
	Iface  string
	Tunnel func() string
	// Given are the NICs that were given away; an error says that nobody can tell.
	Given func() ([]encap.Given, error)
}

// asked is what chooses, and who says it.
func (c Choice) asked() (choice, by string) {
	if on := c.Tunnel(); on != "" {
		return on, "annotation " + AnnTunnel
	}
	return c.Iface, "--iface"
}

// Find is the interface that is chosen now: of one that was given away, the bridge that
// has its addresses, also while the NIC is gone or has another name. An error says who
// chose it, and is core.ErrNotFound for none.
func (c Choice) Find(conn *rtnl.Conn) (encap.NIC, error) {
	choice, by := c.asked()
	given, err := c.Given()
	if err != nil { // without them another one would be taken for the one that is meant
		return encap.NIC{}, fmt.Errorf("%s: %w", by, err)
	}
	nic, err := encap.Find(conn, choice, given...)
	if err != nil {
		return encap.NIC{}, fmt.Errorf("%s: %w", by, err)
	}
	return nic, nil
}

// First is Find at a start, when what is chosen may be yet to come: late says that there is
// none so far, and the NIC is one of a machine without a way out. An error is of a choice
// that can never be met.
func (c Choice) First() (nic encap.NIC, late, err error) {
	conn, err := rtnl.Open(nil)
	if err != nil {
		return encap.NIC{}, nil, err
	}
	defer func() { _ = conn.Close() }()
	var never *syntax.Error
	nic, err = c.Find(conn)
	switch {
	case errors.As(err, &never):
		return encap.NIC{}, nil, err
	case err != nil:
		return encap.NIC{MTU: encap.Ethernet}, err, nil
	}
	return nic, nil, nil
}
