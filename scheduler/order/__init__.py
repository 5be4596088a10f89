"""Who of the waiting requests is tried first: one small class an order."""

from scheduler.order.dfs import DepthFirst
from scheduler.order.lpm import LongestMatch
from scheduler.order.orders import ORDERS, make_order
from scheduler.order.plain import FirstCome, Priority, ResponseRatio
from scheduler.order.rule import Order

__all__ = [
    "ORDERS",
    "DepthFirst",
    "FirstCome",
    "LongestMatch",
    "Order",
    "Priority",
    "ResponseRatio",
    "make_order",
]
