package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
)

// Begin notes in ConfigMap CentralName of the namespace that the cluster of a database
// has begun, under its id. It is nil for the one that came first, however often that
// one asks; all others are refused: two clusters of one database would each be
// believed by a part of the nodes.
func (i *Identity) Begin(ctx context.Context, database, cluster string) error {
	at := "config map " + i.cfg.Namespace + "/" + fairlead.CentralName
	maps := i.client.CoreV1().ConfigMaps(i.cfg.Namespace)
	m, err := maps.Get(ctx, fairlead.CentralName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s is not there: apply Fairlead's manifests again", at)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	switch had := m.Data[database]; had {
	case cluster:
		return nil
	case "":
	default:
		return fmt.Errorf("%s says that the cluster of %s has begun already, as %s, and no member of it answers: start the others; "+
			"if the databases of all members are lost, take key %s away from it, and the controller writes all anew", at, database, had, database)
	}
	m = m.DeepCopy()
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	m.Data[database] = cluster
	if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}
