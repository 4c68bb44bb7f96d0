package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
)

// Begin notes in ConfigMap CentralName of the namespace that the cluster of a database
// has begun, under its id. It is nil for the one that came first, however often that
// one asks; all others are refused: two clusters of one database would each be
// believed by a part of the nodes. anew says that another one takes the place of what is noted,
// and has the time noted, too.
func (i *Identity) Begin(ctx context.Context, database, cluster string, anew bool) error {
	m, err := i.noted(ctx)
	if err != nil {
		return err
	}
	switch had := m.Data[database]; {
	case had == cluster:
		return nil
	case had != "" && !anew:
		return fmt.Errorf("%s says that the cluster of %s has begun already, as %s, and no member of it answers: start the others; "+
			"if the databases of more than half are lost, `fairlead ovn restore` on one member begins them anew", i.note(), database, had)
	}
	m = m.DeepCopy()
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	m.Data[database] = cluster
	if anew {
		m.Data[database+anewSuffix] = time.Now().UTC().Format(time.RFC3339)
	}
	if _, err := i.client.CoreV1().ConfigMaps(i.cfg.Namespace).Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("%s: %w", i.note(), err)
	}
	return nil
}

// anewSuffix ends the key of the time at which a database's cluster was noted in the place of
// another one.
const anewSuffix = "-anew"

// Begun is what is noted of a database.
type Begun struct {
	Cluster string // the id of the one that began last, "" for none
	// Anew is when it was noted in the place of another one; zero: it is the first one, or that is
	// not noted.
	Anew time.Time
}

// Begun is what is noted of a database.
func (i *Identity) Begun(ctx context.Context, database string) (Begun, error) {
	m, err := i.noted(ctx)
	if err != nil {
		return Begun{}, err
	}
	anew, _ := time.Parse(time.RFC3339, m.Data[database+anewSuffix]) // what cannot be read is not noted
	return Begun{Cluster: m.Data[database], Anew: anew}, nil
}

func (i *Identity) note() string { return "config map " + i.cfg.Namespace + "/" + fairlead.CentralName }

// noted is the ConfigMap.
func (i *Identity) noted(ctx context.Context) (*corev1.ConfigMap, error) {
	m, err := i.client.CoreV1().ConfigMaps(i.cfg.Namespace).Get(ctx, fairlead.CentralName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s is not there: apply Fairlead's manifests again", i.note())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.note(), err)
	}
	return m, nil
}
