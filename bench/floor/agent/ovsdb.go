package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// database speaks OVSDB (RFC 7047) with nothing between it and the socket.
type database struct {
	bridge string // uuid
	ovn    bool   // a port is done when ovn-controller says so

	writing sync.Mutex
	conn    net.Conn
	next    int

	mu      sync.Mutex
	replies map[int]chan json.RawMessage
	waiting map[string]chan int // interface name: its ofport
}

// message is any JSON-RPC message.
type message struct {
	Method string            `json:"method,omitempty"`
	Params []json.RawMessage `json:"params,omitempty"`
	ID     any               `json:"id"`
	Result json.RawMessage   `json:"result,omitempty"`
	Error  json.RawMessage   `json:"error,omitempty"`
}

func dial(socket, bridge string, ovn bool) (*database, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	d := &database{conn: conn, ovn: ovn, replies: map[int]chan json.RawMessage{}, waiting: map[string]chan int{}}
	go d.read()
	rows, err := d.transact(fmt.Sprintf(`{"op":"select","table":"Bridge","where":[["name","==",%q]],"columns":["_uuid"]}`, bridge))
	if err != nil {
		return nil, err
	}
	var found []struct {
		Rows []struct {
			UUID [2]string `json:"_uuid"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(rows, &found); err != nil || len(found) != 1 || len(found[0].Rows) != 1 {
		return nil, fmt.Errorf("no bridge %s: %s: %w", bridge, rows, err)
	}
	d.bridge = found[0].Rows[0].UUID[1]
	_, err = d.call("monitor", `"Open_vSwitch"`, `null`, `{"Interface":{"columns":["name","ofport","external_ids"]}}`)
	return d, err
}

// port is what a port of the switch is for: its logical port, and the rate in Mbit/s both
// ways, 0 for none.
type port struct {
	iface string
	mbps  int
}

// rates are the columns of Interface and of Port that limit a port, and the rows that
// these name: as Fairlead writes them. The rows are the logical port's by name.
func (p port) rates() (iface, port string, rows []string) {
	if p.mbps == 0 {
		return "", "", nil
	}
	kbit, bit := 1000*p.mbps, 1000_000*p.mbps
	iface = fmt.Sprintf(`,"ingress_policing_rate":%d,"ingress_policing_burst":%d`, kbit, kbit*8/10)
	return iface, `,"qos":["named-uuid","q"]`, []string{
		fmt.Sprintf(`{"op":"insert","table":"Queue","uuid-name":"u","row":{"other_config":["map",[["max-rate","%d"],["burst","%d"]]],"external_ids":%s}}`, bit, bit/10*8, p.ids()),
		fmt.Sprintf(`{"op":"insert","table":"QoS","uuid-name":"q","row":{"type":"linux-htb","other_config":["map",[["max-rate","%d"]]],"queues":["map",[[0,["named-uuid","u"]]]],"external_ids":%s}}`, bit, p.ids()),
	}
}

// ids are the external_ids of the port's rows.
func (p port) ids() string { return fmt.Sprintf(`["map",[["iface-id",%q]]]`, p.iface) }

// unlimit deletes the rows of the rates of a port, by its name.
func (p port) unlimit(name string) (ops []string) {
	if p.mbps == 0 {
		return nil
	}
	ops = append(ops, fmt.Sprintf(`{"op":"update","table":"Port","where":[["name","==",%q]],"row":{"qos":["set",[]]}}`, name))
	for _, table := range []string{"QoS", "Queue"} {
		ops = append(ops, fmt.Sprintf(`{"op":"delete","table":%q,"where":[["external_ids","includes",%s]]}`, table, p.ids()))
	}
	return ops
}

// addPort is one transaction, and the wait for its ofport or its flows.
func (d *database) addPort(name string, p port) error {
	ofport := make(chan int, 1)
	d.mu.Lock()
	d.waiting[name] = ofport
	d.mu.Unlock()
	limit, queues, rows := p.rates()
	_, err := d.transact(append(rows,
		fmt.Sprintf(`{"op":"insert","table":"Interface","uuid-name":"i","row":{"name":%q,"external_ids":%s%s}}`, name, p.ids(), limit),
		fmt.Sprintf(`{"op":"insert","table":"Port","uuid-name":"p","row":{"name":%q,"interfaces":["named-uuid","i"]%s}}`, name, queues),
		fmt.Sprintf(`{"op":"mutate","table":"Bridge","where":[["_uuid","==",["uuid",%q]]],"mutations":[["ports","insert",["named-uuid","p"]]]}`, d.bridge))...)
	if err != nil {
		return err
	}
	if n := <-ofport; n < 0 {
		return fmt.Errorf("port %s: ofport %d", name, n)
	}
	return nil
}

// delPort is one transaction; the database collects the unreferenced rows, but for those of
// rates.
func (d *database) delPort(name string, p port) error {
	rows, err := d.transact(fmt.Sprintf(`{"op":"select","table":"Port","where":[["name","==",%q]],"columns":["_uuid"]}`, name))
	if err != nil {
		return err
	}
	var found []struct {
		Rows []struct {
			UUID json.RawMessage `json:"_uuid"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(rows, &found); err != nil || len(found) != 1 || len(found[0].Rows) != 1 {
		return fmt.Errorf("no port %s: %s: %w", name, rows, err)
	}
	_, err = d.transact(append(p.unlimit(name), fmt.Sprintf(`{"op":"mutate","table":"Bridge","where":[["_uuid","==",["uuid",%q]]],"mutations":[["ports","delete",%s]]}`,
		d.bridge, found[0].Rows[0].UUID))...)
	return err
}

// transact runs operations as one transaction.
func (d *database) transact(ops ...string) (json.RawMessage, error) {
	result, err := d.call("transact", append([]string{`"Open_vSwitch"`}, ops...)...)
	if err != nil {
		return nil, err
	}
	var each []*struct{ Error, Details string }
	if err := json.Unmarshal(result, &each); err != nil {
		return nil, err
	}
	for _, e := range each {
		if e != nil && e.Error != "" {
			return nil, errors.New(e.Error + ": " + e.Details)
		}
	}
	return result, nil
}

func (d *database) call(method string, params ...string) (json.RawMessage, error) {
	m := message{Method: method}
	for _, p := range params {
		m.Params = append(m.Params, json.RawMessage(p))
	}
	reply := make(chan json.RawMessage, 1)
	d.mu.Lock()
	d.next++
	m.ID = d.next
	d.replies[d.next] = reply
	d.mu.Unlock()
	if err := d.send(m); err != nil {
		return nil, err
	}
	return <-reply, nil
}

func (d *database) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	_, err = d.conn.Write(b)
	return err
}

// read takes what the database sends until the process ends.
func (d *database) read() {
	for in := json.NewDecoder(d.conn); ; {
		var m message
		if err := in.Decode(&m); err != nil {
			fatal(fmt.Errorf("database: %w", err))
		}
		switch m.Method {
		case "":
			d.reply(m)
		case "echo":
			// Its parameters are always empty.
			if err := d.send(message{ID: m.ID, Result: json.RawMessage("[]"), Error: json.RawMessage("null")}); err != nil {
				fatal(err)
			}
		case "update":
			d.update(m)
		}
	}
}

func (d *database) reply(m message) {
	id, _ := m.ID.(float64)
	if len(m.Error) > 0 && string(m.Error) != "null" {
		fatal(fmt.Errorf("database refuses: %s", m.Error))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replies[int(id)] <- m.Result
	delete(d.replies, int(id))
}

// update looks for interfaces that have got their ofport, or their flows.
func (d *database) update(m message) {
	var tables struct {
		Interface map[string]struct {
			New struct {
				Name   string `json:"name"`
				OFPort any    `json:"ofport"` // a number, or an empty set
				IDs    any    `json:"external_ids"`
			} `json:"new"`
		} `json:"Interface"`
	}
	if len(m.Params) != 2 || json.Unmarshal(m.Params[1], &tables) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range tables.Interface {
		n, set := row.New.OFPort.(float64)
		if d.ovn {
			set = set && strings.Contains(fmt.Sprint(row.New.IDs), "ovn-installed true")
		}
		if wait, ok := d.waiting[row.New.Name]; ok && set {
			wait <- int(n)
			delete(d.waiting, row.New.Name)
		}
	}
}
