package journal

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// splitKinds is the step from schema 1, whose specs were flat, to schema 2, whose
// specs have one part of their kind. It works on the JSON and knows no type of
// core, which goes on changing; what it does not know stays where it is, and is
// found when the rows are read.
func splitKinds(tx *bbolt.Tx) error {
	rows := tx.Bucket(bucketNames[records])
	if rows == nil {
		return &corruptError{fmt.Errorf("bucket %s is missing", bucketNames[records])}
	}
	now := map[string][]byte{} // a bucket must not change while it is walked
	err := rows.ForEach(func(k, v []byte) error {
		r, err := unseal(string(k), v)
		if err == nil {
			r.data, err = kindsOfRecord(r.data)
		}
		if err != nil {
			return &corruptError{fmt.Errorf("%s %q: %w", bucketNames[records], k, err)}
		}
		now[string(k)] = r.seal(string(k))
		return nil
	})
	for k, v := range now {
		if err == nil {
			err = rows.Put([]byte(k), v)
		}
	}
	return err
}

// object is a JSON object of which some keys are looked at.
type object map[string]json.RawMessage

// change has fn change the objects of the list at key, where there is one.
func (o object) change(key string, fn func(object) error) error {
	if len(o[key]) == 0 {
		return nil
	}
	var list []object
	if err := json.Unmarshal(o[key], &list); err != nil {
		return err
	}
	for _, each := range list {
		if err := fn(each); err != nil {
			return err
		}
	}
	var err error
	o[key], err = json.Marshal(list)
	return err
}

// take moves those of keys that o has to a new object.
func (o object) take(keys ...string) object {
	out := object{}
	for _, k := range keys {
		if v, ok := o[k]; ok {
			out[k] = v
			delete(o, k)
		}
	}
	return out
}

// put makes part the value of key.
func (o object) put(key string, part object) (err error) {
	o[key], err = json.Marshal(part)
	return err
}

func kindsOfRecord(data []byte) ([]byte, error) {
	var rec object
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, err
	}
	if err := rec.change("specs", kindOfSpec); err != nil {
		return nil, err
	}
	if err := rec.change("yielded", kindOfSpec); err != nil {
		return nil, err
	}
	err := rec.change("parts", func(part object) error {
		if err := part.change("specs", kindOfSpec); err != nil {
			return err
		}
		return part.change("restore", kindOfSpec)
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(rec)
}

// kindOfSpec gives a spec the part of its kind, which its driver tells: there
// were five.
func kindOfSpec(s object) error {
	var driver string
	if err := json.Unmarshal(s["driver"], &driver); err != nil {
		return err
	}
	switch driver {
	case "exec":
		return s.addTo("exec", s.take("failed"))
	case "defroute":
		return s.put("defaultRoute", s.take("gateways"))
	case "hostport":
		return s.put("hostPorts", s.take("addrs", "ports"))
	case "addresses":
		return s.put("lent", s.takeNIC())
	}
	port := s.take("hostIf")
	if v, ok := s["nicType"]; ok {
		port["type"] = v
		delete(s, "nicType")
	}
	nic := s.takeNIC()
	if err := nic.put("ovs", port); err != nil {
		return err
	}
	return s.put("nic", nic)
}

// takeNIC takes what every kind of NIC has.
func (o object) takeNIC() object {
	return o.take("subnet", "ifaceID", "addrs", "gateways", "mac", "mtu", "routes", "dns", "vlan", "qos", "mirror", "bandwidth", "noDefault")
}

// addTo adds the keys of more to the object at key.
func (o object) addTo(key string, more object) error {
	if len(more) == 0 {
		return nil
	}
	var there object
	if err := json.Unmarshal(o[key], &there); err != nil {
		return err
	}
	for k, v := range more {
		there[k] = v
	}
	return o.put(key, there)
}
