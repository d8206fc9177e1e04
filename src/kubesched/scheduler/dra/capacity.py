"""Consumable capacity: the amounts that a request consumes of a device (rules/devices §8.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubesched.api.quantity import QuantityText, canonical_quantity, parse_quantity
from kubesched.api.resource import CapacityRequestPolicy

from .models import Capacity, DeviceModel

__all__ = ["Amount", "consumption_of"]

_UNIT: Final = 10**9

#: Amount in nano-units, and the quantity as results write it.
Amount = tuple[int, str]


def consumption_of(model: DeviceModel, requests: Mapping[str, QuantityText]) -> dict[str, Amount] | None:
    """Amounts that a request consumes of every capacity of a device; None when the device cannot serve it.

    A device cannot serve a request for a capacity that it lacks, or for an amount that the policy forbids. The amount
    that is still free on the device is not checked here.
    """
    if not requests.keys() <= model.capacity.keys():
        return None
    consumption: dict[str, Amount] = {}
    for name, entry in model.capacity.items():
        amount = _amount(entry, requests.get(name))
        if amount is None or amount[0] > entry.value:
            return None
        consumption[name] = amount
    return consumption


def _amount(entry: Capacity, requested: QuantityText | None) -> Amount | None:
    policy = entry.policy
    if requested is None:
        text = entry.text if policy is None or policy.default is None else policy.default
    else:
        text = requested
    amount = (parse_quantity(text).nanos, canonical_quantity(text))
    if policy is None:
        return amount
    if requested is not None:
        amount = _rounded(amount, policy)
    return amount if _allowed(amount[0], policy) else None


def _rounded(amount: Amount, policy: CapacityRequestPolicy) -> Amount:
    """Round a request up to an amount that the policy offers."""
    span = policy.valid_range
    if span is not None and span.min is not None:
        low = parse_quantity(span.min).nanos
        if amount[0] < low:
            return low, canonical_quantity(span.min)
        if span.step is not None and (step := parse_quantity(span.step).value()) > 0:
            wanted, start = -(-amount[0] // _UNIT), -(-low // _UNIT)
            steps = -(-(wanted - start) // step)
            if start + steps * step != wanted or amount[0] % _UNIT:
                total = start + steps * step
                return total * _UNIT, canonical_quantity(total, like=amount[1])
        return amount
    if policy.valid_values:
        offered = sorted((parse_quantity(value).nanos, canonical_quantity(value)) for value in policy.valid_values)
        return next((value for value in offered if value[0] >= amount[0]), amount)
    return amount


def _allowed(nanos: int, policy: CapacityRequestPolicy) -> bool:
    if policy.default is not None and nanos == parse_quantity(policy.default).nanos:
        return True
    span = policy.valid_range
    if span is not None:
        if span.max is not None and nanos > parse_quantity(span.max).nanos:
            return False
        if span.step is not None and (step := parse_quantity(span.step).value()) > 0:
            low = 0 if span.min is None else parse_quantity(span.min).value()
            if (-(-nanos // _UNIT) - low) % step:
                return False
        return True
    if policy.valid_values:
        return any(nanos == parse_quantity(value).nanos for value in policy.valid_values)
    return True
