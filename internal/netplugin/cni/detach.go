package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// detach runs DEL by a record. Where libcni refuses the configuration it has run
// no plugin with it, and there is nothing to detach.
func (p *Plugin) detach(ctx context.Context, r store.Record, netns string) error {
	list, err := libcni.NetworkConfFromBytes(r.Conf)
	if err == nil {
		err = explain.ValidName(list)
	}
	if err != nil {
		p.conf.Log.Warn("nothing is detached: no pod is attached by such a configuration", "sandbox", r.Pod.Sandbox, "err", err)
		return nil
	}
	rt, err := runtimeConf(r, netns, capabilities(list))
	if err != nil {
		return err
	}
	// libcni ends at the first plugin that fails. One that is done with is left
	// out, and those before it have their DEL; the last round, which has none left,
	// removes what libcni keeps.
	for {
		err := p.cni.DelNetworkList(ctx, list, rt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || len(list.Plugins) == 0 || !over(r.Refused, err) {
			return fmt.Errorf("network %s: %w", list.Name, err)
		}
		p.conf.Log.Warn("plugin refused the pod, and its DEL too: nothing of it is left", "sandbox", r.Pod.Sandbox, "network", list.Name, "err", err)
		list.Plugins = list.Plugins[:len(list.Plugins)-1]
	}
}

// refusal is an ADD's error as the record keeps it.
func refusal(err error) *types.Error {
	if said := (*types.Error)(nil); errors.As(err, &said) {
		return said
	}
	return &types.Error{Code: types.ErrInternal, Msg: err.Error()} // of libcni's own
}

// settled are the codes that say that the configuration, and not the machine, is
// what is wrong: version, field, environment, content, network (CNI spec, "Error").
var settled = []uint{
	types.ErrIncompatibleCNIVersion, types.ErrUnsupportedField, types.ErrInvalidEnvironmentVariables,
	types.ErrDecodingFailure, types.ErrInvalidNetworkConfig,
}

// over tells that a DEL which fails need not be tried again: the ADD was refused
// as well, and the DEL's error blames the configuration or is the ADD's.
func over(add *types.Error, err error) bool {
	if add == nil {
		return false
	}
	del := refusal(err)
	return slices.Contains(settled, del.Code) || *del == *add
}
