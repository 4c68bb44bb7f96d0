package source

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// references lists what an API server would have to serve: on a node without
// one it can never be had. With objects, ConfigMaps and Secrets can.
func references(pod *v1.Pod, objects bool) field.ErrorList {
	r := refs{objects: objects}
	s, at := &pod.Spec, field.NewPath("spec")
	r.refuse(s.ServiceAccountName != "", at.Child("serviceAccountName"), "service accounts")
	r.refuse(len(s.ResourceClaims) > 0, at.Child("resourceClaims"), "resource claims")
	for i, c := range s.InitContainers {
		r.container(c, at.Child("initContainers").Index(i))
	}
	for i, c := range s.Containers {
		r.container(c, at.Child("containers").Index(i))
	}
	for i := range s.ImagePullSecrets {
		r.object(true, at.Child("imagePullSecrets").Index(i), "secrets")
	}
	for i := range s.Volumes {
		r.volume(&s.Volumes[i].VolumeSource, at.Child("volumes").Index(i))
	}
	return r.errs
}

type refs struct {
	objects bool
	errs    field.ErrorList
}

func (r *refs) refuse(is bool, at *field.Path, what string) {
	if is {
		r.errs = append(r.errs, field.Forbidden(at, "static pods may not reference "+what))
	}
}

// object refuses a ConfigMap or Secret unless the node has them as files.
func (r *refs) object(is bool, at *field.Path, what string) { r.refuse(is && !r.objects, at, what) }

func (r *refs) container(c v1.Container, at *field.Path) {
	for i, e := range c.EnvFrom {
		at := at.Child("envFrom").Index(i)
		r.object(e.ConfigMapRef != nil, at.Child("configMapRef"), "configmaps")
		r.object(e.SecretRef != nil, at.Child("secretRef"), "secrets")
	}
	for i, e := range c.Env {
		if e.ValueFrom != nil {
			at := at.Child("env").Index(i).Child("valueFrom")
			r.object(e.ValueFrom.ConfigMapKeyRef != nil, at.Child("configMapKeyRef"), "configmaps")
			r.object(e.ValueFrom.SecretKeyRef != nil, at.Child("secretKeyRef"), "secrets")
		}
	}
}

func (r *refs) volume(v *v1.VolumeSource, at *field.Path) {
	r.object(v.ConfigMap != nil, at.Child("configMap"), "configmaps")
	r.object(v.Secret != nil, at.Child("secret"), "secrets")
	r.refuse(v.CSI != nil, at.Child("csi"), "csidrivers")
	r.refuse(v.Glusterfs != nil, at.Child("glusterfs"), "endpoints")
	r.refuse(v.PersistentVolumeClaim != nil, at.Child("persistentVolumeClaim"), "persistentvolumeclaims")
	r.refuse(v.Ephemeral != nil, at.Child("ephemeral"), "persistentvolumeclaims")
	r.refuse(v.AzureFile != nil, at.Child("azureFile"), "secrets")
	r.storage(v, at)
	if v.Projected == nil {
		return
	}
	for i, p := range v.Projected.Sources {
		at := at.Child("projected", "sources").Index(i)
		r.object(p.ConfigMap != nil, at.Child("configMap"), "configmaps")
		r.object(p.Secret != nil, at.Child("secret"), "secrets")
		r.refuse(p.ServiceAccountToken != nil, at.Child("serviceAccountToken"), "service accounts")
		r.refuse(p.ClusterTrustBundle != nil, at.Child("clusterTrustBundle"), "clustertrustbundles")
		r.refuse(p.PodCertificate != nil, at.Child("podCertificate"), "podcertificates")
	}
}

// storage refuses the secrets of network storage.
func (r *refs) storage(v *v1.VolumeSource, at *field.Path) {
	r.object(v.CephFS != nil && v.CephFS.SecretRef != nil, at.Child("cephfs", "secretRef"), "secrets")
	r.object(v.Cinder != nil && v.Cinder.SecretRef != nil, at.Child("cinder", "secretRef"), "secrets")
	r.object(v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, at.Child("flexVolume", "secretRef"), "secrets")
	r.object(v.RBD != nil && v.RBD.SecretRef != nil, at.Child("rbd", "secretRef"), "secrets")
	r.object(v.ScaleIO != nil && v.ScaleIO.SecretRef != nil, at.Child("scaleIO", "secretRef"), "secrets")
	r.object(v.ISCSI != nil && v.ISCSI.SecretRef != nil, at.Child("iscsi", "secretRef"), "secrets")
	r.object(v.StorageOS != nil && v.StorageOS.SecretRef != nil, at.Child("storageos", "secretRef"), "secrets")
}
